"""Test the recurrence of a loop against the steps that it replaces."""

from __future__ import annotations

import functools
import importlib
import itertools
from collections.abc import Callable, Iterable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from regraft.ops import implementation, linear_recurrence  # noqa: E402
from regraft.ops.linear_recurrence import linear_recurrence_reference  # noqa: E402

STEPS = 100  # two scans


def sample(*shape: int, dtype: Any = torch.float64, scale: float = 1.0) -> Any:
    """Return a random tensor with gradients."""
    return (torch.randn(shape, dtype=dtype) * scale).requires_grad_()


def states_of(
    op: Callable[..., Any], operands: tuple[Any, ...], steps: Iterable[int], state: Any
) -> list[Any]:
    """Return the states after each step of a loop."""
    next_state, states = op(*operands), []
    for step in steps:
        state = next_state(step, state)
        states.append(state)
    return states


def gradients_of(states: list[Any], leaves: list[Any]) -> tuple[Any, ...]:
    """Return the gradients of a sum of powers of the states."""
    total = sum((state.abs() ** 1.5).sum() for state in states)
    gradients: tuple[Any, ...] = torch.autograd.grad(
        total, leaves, retain_graph=True, allow_unused=True
    )
    return gradients


def compare(operands: tuple[Any, ...], steps: Iterable[int], state: Any) -> list[Any]:
    """Assert that the op gives the states and gradients of the composition; return its states."""
    steps = list(steps)
    ours = states_of(linear_recurrence, operands, steps, state)
    theirs = states_of(linear_recurrence_reference, operands, steps, state)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, equal_nan=True)
    tensors = [value for value in (*operands, state) if isinstance(value, torch.Tensor)]
    leaves = [tensor for tensor in tensors if tensor.requires_grad]
    if leaves and ours:
        pairs = zip(gradients_of(ours, leaves), gradients_of(theirs, leaves), strict=True)
        for mine, other in pairs:
            torch.testing.assert_close(mine, other, equal_nan=True)
    return ours


def is_scan(state: Any) -> bool:
    """Return whether a state was computed together with others."""
    return type(state.grad_fn).__name__ == "_ScanBackward"


LOOPS = {
    "all": range(STEPS),
    "backwards": range(STEPS - 1, -1, -1),
    "from the second": range(1, STEPS),
    "to the second": range(STEPS - 1, 0, -1),
    "from the middle": range(40, STEPS),
    "backwards from the middle": range(60, -1, -1),
    "the first": range(70),
}


@pytest.mark.parametrize("steps", LOOPS.values(), ids=LOOPS)
@pytest.mark.parametrize("a_dim", [1, None])
def test_loops_through_neighbouring_slices_are_scanned(steps: range, a_dim: int | None) -> None:
    a = sample(2, STEPS, 3, scale=0.5) if a_dim else sample(3, scale=0.5)
    states = compare((a, sample(2, STEPS, 3), a_dim, 1), steps, sample(2, 3))
    assert is_scan(states[-1])


@pytest.mark.parametrize("steps", [range(0, STEPS, 2), [3, 50, 7, 7, 8], range(-5, 0), []])
def test_other_orders_are_computed_step_by_step(steps: Iterable[int]) -> None:
    operands = sample(2, STEPS, 3, scale=0.5), sample(2, STEPS, 3), 1, 1
    compare(operands, steps, sample(2, 3))


@pytest.mark.parametrize("dim", [0, 1, 2, 3, -1, -2, -3])
def test_slices_along_any_dimension(dim: int) -> None:
    shape = [2, 3, 4, 5]
    shape[dim] = 40
    operands = sample(*shape, scale=0.5), sample(*shape), dim, dim
    del shape[dim]
    assert is_scan(compare(operands, range(40), sample(*shape))[-1])


@pytest.mark.parametrize("factor", [0.9, 2, -1, 0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex128])
def test_a_number_as_factor(factor: float, dtype: Any) -> None:
    operands = factor, sample(2, 40, 3, dtype=dtype), None, 1
    assert is_scan(compare(operands, range(20), sample(2, 3, dtype=dtype))[-1])


@pytest.mark.parametrize(
    ("a_shape", "b_shape", "state_shape"),
    [
        ((2, 40, 1), (2, 40, 3), (2, 3)),
        ((1, 40, 3), (2, 40, 1), (2, 3)),
        ((2, 40, 3), (2, 40, 3), (3,)),
        ((2, 40, 3), (2, 40, 3), ()),
        ((2, 40), (2, 40), (5, 2)),
        ((2, 40, 0), (2, 40, 0), (2, 0)),
        ((2, 40, 3), (2, 40, 3), (4, 2, 3)),
    ],
)
def test_slices_and_states_are_broadcast(
    a_shape: tuple[int, ...], b_shape: tuple[int, ...], state_shape: tuple[int, ...]
) -> None:
    operands = sample(*a_shape, scale=0.5), sample(*b_shape), 1, 1
    assert is_scan(compare(operands, range(40), sample(*state_shape))[-1])


def test_a_number_as_first_state() -> None:
    operands = sample(2, 40, 3, scale=0.5), sample(2, 40, 3), 1, 1
    assert is_scan(compare(operands, range(40), 0)[-1])
    assert is_scan(compare(operands, range(39, -1, -1), 1.5)[-1])


@pytest.mark.parametrize("wanted", list(itertools.product([False, True], repeat=3)))
def test_each_operand_may_need_no_gradient(wanted: tuple[bool, ...]) -> None:
    tensors = [sample(2, 40, 3, scale=0.5), sample(2, 40, 3), sample(2, 3)]
    for tensor, is_wanted in zip(tensors, wanted, strict=True):
        tensor.requires_grad_(is_wanted)
    states = compare((*tensors[:2], 1, 1), range(40), tensors[2])
    assert is_scan(states[-1]) == any(wanted)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("factor", ["slices", "number"])
def test_half_precision_is_no_further_from_the_exact_result(dtype: Any, factor: str) -> None:
    torch.manual_seed(0)
    exact = [torch.rand(2, STEPS, 3).to(dtype), torch.randn(2, STEPS, 3).to(dtype)]
    errors = []
    for op, computed in (
        (linear_recurrence_reference, torch.float64),
        (linear_recurrence, dtype),
        (linear_recurrence_reference, dtype),
    ):
        a, b = (tensor.to(computed).requires_grad_() for tensor in exact)
        first = torch.zeros(2, 3, dtype=computed)
        operands = (a, b, 1, 1) if factor == "slices" else (0.93, b, None, 1)
        states = states_of(op, operands, range(STEPS), first)
        leaves = [a, b] if factor == "slices" else [b]
        grads = torch.autograd.grad(torch.stack(states).double().tanh().sum(), leaves)
        errors.append([torch.stack(states).double(), *(grad.double() for grad in grads)])
    for right, ours, theirs in zip(*errors, strict=True):
        assert (ours - right).norm() <= 1.1 * (theirs - right).norm() + 1e-6


def test_derivatives_to_the_second() -> None:
    a, b, state = sample(2, 5, 3), sample(2, 5, 3), sample(2, 3)

    def run(a: Any, b: Any, state: Any, a_dim: Any = 1, steps: Any = range(5)) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("REGRAFT_KERNELS", "always")
            states = states_of(linear_recurrence, (a, b, a_dim, 1), steps, state)
        assert is_scan(states[-1])
        return torch.stack(states[::2]).tanh()

    assert torch.autograd.gradcheck(run, (a, b, state))
    assert torch.autograd.gradgradcheck(run, (a, b, state))
    backwards = functools.partial(run, steps=range(4, -1, -1))
    assert torch.autograd.gradgradcheck(backwards, (a, b, state))
    factor = sample(3)
    assert torch.autograd.gradgradcheck(functools.partial(run, a_dim=None), (factor, b, state))
    complex_operands = [sample(2, 5, 3, dtype=torch.complex128) for _ in range(2)]
    assert torch.autograd.gradgradcheck(run, (*complex_operands, state.to(torch.complex128)))


def test_gradients_of_many_losses_at_once() -> None:
    a, b, state = sample(2, 40, 3), sample(2, 40, 3), sample(2, 3)
    losses = []
    for op in (linear_recurrence, linear_recurrence_reference):
        total = torch.stack(states_of(op, (a * 0.5, b, 1, 1), range(40), state)).tanh()
        seeds = torch.eye(total.numel(), dtype=total.dtype)[:4].reshape(4, *total.shape)
        losses.append(torch.autograd.grad(total, (a, b, state), seeds, is_grads_batched=True))
    for mine, other in zip(*losses, strict=True):
        torch.testing.assert_close(mine, other)


def test_steps_after_the_last_one_of_the_loop_leave_gradients_alone() -> None:
    a, b = sample(2, 40, 3).detach(), sample(2, 40, 3).detach()
    a[:, 20:] = float("inf")
    b[:, 25:] = float("nan")
    operands = a.requires_grad_(), b.requires_grad_(), 1, 1
    states = compare(operands, range(10), sample(2, 3))
    assert is_scan(states[-1])
    assert all(grad.isfinite().all() for grad in gradients_of(states, [a, b]))
    compare(operands, range(40), sample(2, 3))


def test_a_state_that_the_loop_changes_is_taken_as_it_is() -> None:
    def run(op: Callable[..., Any], change: Callable[[int, Any], Any]) -> list[Any]:
        torch.manual_seed(0)
        a, b, state = sample(2, 60, 3), sample(2, 60, 3), sample(2, 3)
        next_state, states = op(a * 0.5, b, 1, 1), []
        for step in range(60):
            state = change(step, next_state(step, state))
            states.append(state * 2)
        return [*states, *gradients_of(states, [a, b])]

    changes: list[Callable[[int, Any], Any]] = [
        lambda step, state: state.tanh() if step % 7 == 3 else state,
        lambda step, state: state.detach() if step % 20 == 9 else state,
        lambda step, state: torch.zeros_like(state) if step == 30 else state,
        lambda step, state: state.double() if step == 30 else state,
    ]
    for change in changes:
        ours, theirs = run(linear_recurrence, change), run(linear_recurrence_reference, change)
        for mine, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(mine, other)


def test_a_change_in_place_is_seen_or_an_error() -> None:
    a, b = sample(2, 60, 3, scale=0.5), sample(2, 60, 3)

    def run(op: Callable[..., Any], changed: str) -> list[Any]:
        operands = {"a": a * 1, "b": b * 1}
        next_state, state, states = op(operands["a"], operands["b"], 1, 1), torch.zeros(2, 3), []
        state = state.double()
        for step in range(60):
            state = next_state(step, state)
            if step == 40 and changed == "state":
                state.mul_(2)
            elif step == 40:
                operands[changed].add_(1)
            states.append(state)
        return states

    for changed in ("a", "b", "state"):
        ours, theirs = run(linear_recurrence, changed), run(linear_recurrence_reference, changed)
        for mine, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(mine, other)
    torch.testing.assert_close(
        gradients_of(run(linear_recurrence, "b"), [a, b]),
        gradients_of(run(linear_recurrence_reference, "b"), [a, b]),
    )
    for changed in ("a", "state"):
        with pytest.raises(RuntimeError, match="inplace"):
            gradients_of(run(linear_recurrence, changed), [a, b])


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients(mode: Callable[[], Any]) -> None:
    a, b, state = sample(2, 60, 3, dtype=torch.float32), sample(2, 60, 3).float(), torch.zeros(2, 3)
    for operands in ((a, b, 1, 1), (0.5, b, None, 1), (a[0, 0], b, None, 1)):
        with mode():
            ours = states_of(linear_recurrence, operands, range(60), state)
            theirs = states_of(linear_recurrence_reference, operands, range(60), state)
        torch.testing.assert_close(ours, theirs)
    with mode():
        mixed = states_of(linear_recurrence, (a, b, 1, 1), range(60), state.double())
    assert mixed[-1].dtype == torch.float64


def test_gradients_that_are_switched_on_and_off_between_steps() -> None:
    a, b = sample(2, 60, 3, scale=0.5), sample(2, 60, 3)

    def run(op: Callable[..., Any]) -> list[Any]:
        next_state, state, states = op(a, b, 1, 1), torch.zeros(2, 3, dtype=torch.float64), []
        for step in range(60):
            with torch.set_grad_enabled(not 20 <= step < 40):
                state = next_state(step, state)
            states.append(state)
        return states

    ours, theirs = run(linear_recurrence), run(linear_recurrence_reference)
    assert [s.requires_grad for s in ours] == [s.requires_grad for s in theirs]
    torch.testing.assert_close(ours, theirs)
    pairs = (gradients_of([s for s in run if s.requires_grad], [a, b]) for run in (ours, theirs))
    torch.testing.assert_close(*pairs)


def test_what_is_no_plain_tensor_is_computed_as_before() -> None:
    numpy = pytest.importorskip("numpy")
    array = numpy.random.default_rng(0).normal(size=(2, 5, 3))
    compare((array, array, 1, 1), range(5), numpy.zeros((2, 3)))
    integers = torch.arange(30).reshape(2, 5, 3)
    assert implementation("linear_recurrence", integers, integers, 1, 1) == "reference"
    compare((integers, integers, 1, 1), range(5), torch.ones(2, 3, dtype=torch.int64))
    mixed = sample(2, 40, 3), sample(2, 40, 3, dtype=torch.float32), 1, 1
    assert compare(mixed, range(40), torch.zeros(2, 3))[-1].dtype == torch.float64
    operands = sample(2, 40, 3), sample(2, 40, 3), 1, 1
    compare(operands, range(40), torch.zeros(2, 3))  # of another dtype than the slices
    with pytest.raises(IndexError):
        linear_recurrence(*operands)(40, sample(2, 3))
    nothing: Any = None
    linear_recurrence(nothing, nothing, 1, 1)  # as long as no step is taken, nothing is wrong


def last_state(a: Any, b: Any, state: Any) -> Any:
    """Return the state after all steps."""
    next_state = linear_recurrence(a, b, 1, 1)
    for step in range(b.shape[1]):
        state = next_state(step, state)
    return state


def test_transformations_of_functions_see_the_composition() -> None:
    a, b, state = sample(2, 40, 3, scale=0.5), sample(2, 40, 3), sample(2, 3)
    gradient = torch.autograd.grad(last_state(a, b, state).sum(), a)[0]
    detached = a.detach(), b.detach(), state.detach()
    of_function = torch.func.grad(lambda a: last_state(a, *detached[1:]).sum())(detached[0])
    torch.testing.assert_close(of_function, gradient)
    per_sample = torch.func.vmap(lambda *x: last_state(*(y[None] for y in x))[0])(*detached)
    torch.testing.assert_close(per_sample, last_state(*detached))
    _, tangent = torch.func.jvp(
        lambda a: last_state(a, *detached[1:]), (detached[0],), (torch.ones_like(a),)
    )
    torch.testing.assert_close(tangent.sum(), gradient.sum())


def test_compilers_and_traces_see_the_composition() -> None:
    small = sample(2, 4, 3, dtype=torch.float32), sample(2, 4, 3, dtype=torch.float32)
    state = torch.zeros(2, 3)
    compiled = torch.compile(last_state, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(*small, state), last_state(*small, state))
    traced = torch.jit.trace(last_state, (small[0].detach(), small[1].detach(), state))
    torch.testing.assert_close(traced(*small, state), last_state(*small, state))


def test_checkpoints_and_hooks_on_the_operands() -> None:
    a, b, state = sample(2, 40, 3, scale=0.5), sample(2, 40, 3), sample(2, 3)
    plain = torch.autograd.grad(last_state(a, b, state).sum(), (a, b, state))
    seen: list[Any] = []
    hook = a.register_hook(seen.append)
    result = torch.utils.checkpoint.checkpoint(last_state, a, b, state, use_reentrant=False)
    torch.testing.assert_close(torch.autograd.grad(result.sum(), (a, b, state)), plain)
    hook.remove()
    assert len(seen) == 1
    torch.testing.assert_close(seen[0], plain[0])


@pytest.mark.parametrize("index", [[1], [1, 2]])
@pytest.mark.parametrize("grad", [True, False])
def test_a_tensor_as_step_gives_slices_of_its_own_shape(index: list[int], grad: bool) -> None:
    a, b, offset = sample(2, 60, 3, scale=0.5), sample(2, 60, 3), torch.tensor(index)
    state = torch.zeros(2, len(index), 3, dtype=torch.float64)
    with torch.set_grad_enabled(grad):
        steps = [offset + step for step in range(50)]
        ours = states_of(linear_recurrence, (a, b, 1, 1), steps, state)
        theirs = states_of(linear_recurrence_reference, (a, b, 1, 1), steps, state)
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("transposed", ["a", "b", "state", "ab", "abstate", "none"])
@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("is_number", [True, False])
def test_strides_of_states(transposed: str, grad: bool, is_number: bool) -> None:
    def tensor(name: str, *shape: int) -> Any:
        if name in transposed:
            return sample(*shape[:-2], shape[-1], shape[-2], scale=0.5).mT
        return sample(*shape, scale=0.5)

    a, b = tensor("a", 2, STEPS, 3, 5), tensor("b", 2, STEPS, 3, 5)
    operands = (0.5, b, None, 1) if is_number else (a, b, 1, 1)
    state = tensor("state", 2, 3, 5)
    with torch.set_grad_enabled(grad):
        ours = states_of(linear_recurrence, operands, range(STEPS), state)
        theirs = states_of(linear_recurrence_reference, operands, range(STEPS), state)
    assert [state.stride() for state in ours] == [state.stride() for state in theirs]
    torch.testing.assert_close(ours, theirs)


def test_gradients_that_an_operand_needs_from_a_step_on() -> None:
    def run(op: Callable[..., Any]) -> Any:
        torch.manual_seed(0)
        a, b = sample(2, 60, 3, scale=0.5).requires_grad_(False), sample(2, 60, 3)
        next_state, state = op(a, b, 1, 1), torch.zeros(2, 3, dtype=torch.float64)
        for step in range(60):
            if step == 10:
                a.requires_grad_()
            state = next_state(step, state)
        return torch.autograd.grad(state.sum(), (a, b))

    torch.testing.assert_close(run(linear_recurrence), run(linear_recurrence_reference))


@pytest.mark.parametrize("used", [1, 2, 20])
def test_loops_that_leave_scans_compute_few_states_in_vain(
    used: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[None] = []
    module = importlib.import_module("regraft.ops.linear_recurrence")
    add_product = module._add_product

    def count_products(*arguments: Any) -> Any:
        computed.append(None)
        return add_product(*arguments)

    monkeypatch.setattr(module, "_add_product", count_products)
    a, b = sample(2, 400, 3, scale=0.5), sample(2, 400, 3)
    results = []
    for op in (linear_recurrence, linear_recurrence_reference):
        next_state, state, states = op(a, b, 1, 1), torch.zeros(2, 3, dtype=torch.float64), []
        for step in range(400):
            state = next_state(step, state.detach() if step % used == 0 else state)
            states.append(state)
        assert len(computed) < 400 + 2 * 64
        results.append([*states, *gradients_of(states, [a, b])])
        computed.clear()
    torch.testing.assert_close(*results)
