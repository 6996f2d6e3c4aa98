// A CUDA device that PyTorch takes for a real one as long as no kernel runs on it: what autograd
// asks a device for (its number, its streams) is answered without a driver, in builds of PyTorch
// with and without CUDA. The tensors on it are those of FakeTensorMode, which have no memory.

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <cstring>
#include <memory>

#if __has_include(<driver_types.h>)
#include <driver_types.h>
#define HAS_CUDA_HEADERS
#endif

namespace {

using c10::Device;
using c10::DeviceType;
using c10::Stream;

const Device the_device{DeviceType::CUDA, 0};

struct FakeGuard final : c10::impl::DeviceGuardImplInterface {
  DeviceType type() const override { return DeviceType::CUDA; }
  Device exchangeDevice(Device) const override { return the_device; }
  Device getDevice() const override { return the_device; }
  void setDevice(Device) const override {}
  void uncheckedSetDevice(Device) const noexcept override {}
  Stream getStream(Device) const override { return Stream(Stream::DEFAULT, the_device); }
  Stream getNewStream(Device device, int) const override { return getStream(device); }
  Stream exchangeStream(Stream) const override { return getStream(the_device); }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
};

struct FakeHooks final : at::CUDAHooksInterface {
  explicit FakeHooks(at::CUDAHooksArgs) {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return false; }
  c10::DeviceIndex current_device() const override { return 0; }
  int getNumGPUs() const override { return 1; }
  bool compiledWithCuDNN() const override { return true; }
  bool hasCuDNN() const override { return true; }
  double batchnormMinEpsilonCuDNN() const override { return 1e-5; }
  long versionCuDNN() const override { return 91000; }
  long versionRuntimeCuDNN() const override { return 91000; }
};

std::unique_ptr<at::CUDAHooksInterface> make_hooks(at::CUDAHooksArgs arguments) {
  return std::make_unique<FakeHooks>(arguments);
}

const FakeGuard guard;

}  // namespace

// Before `import torch`, which asks for the hooks once and registers its own with lower priority.
extern "C" void register_hooks() {
  at::CUDAHooksRegistry()->Register("CUDAHooks", make_hooks, "", c10::REGISTRY_PREFERRED);
}

// After `import torch`, which registers a guard of its own.
extern "C" void register_guard() {
  c10::impl::device_guard_impl_registry[static_cast<size_t>(DeviceType::CUDA)].store(&guard);
}

#ifdef HAS_CUDA_HEADERS
// In place of PyTorch's functions, which ask the driver: an H100, by which PyTorch chooses among its
// attention kernels.
namespace c10::cuda {

__attribute__((visibility("default"))) DeviceIndex device_count() noexcept { return 1; }

}  // namespace c10::cuda

namespace at::cuda {

__attribute__((visibility("default"))) cudaDeviceProp* getCurrentDeviceProperties() {
  static cudaDeviceProp properties = [] {
    cudaDeviceProp device;
    std::memset(&device, 0, sizeof device);
    std::strcpy(device.name, "fake H100");
    device.major = 9;
    device.minor = 0;
    device.multiProcessorCount = 132;
    device.warpSize = 32;
    device.maxThreadsPerMultiProcessor = 2048;
    device.sharedMemPerBlockOptin = 232448;
    return device;
  }();
  return &properties;
}

}  // namespace at::cuda
#endif
