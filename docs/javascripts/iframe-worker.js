// Browsers refuse workers to pages that are opened from disk: there the search runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inner = this.frame.contentWindow;
      inner.document.open();
      inner.document.write("<!doctype html><title>search</title><script>" +
        "importScripts = (...names) => Promise.all(names.map((name) => new Promise((resolve) => {" +
        "  const script = document.createElement('script'); script.src = name; script.onload = resolve;" +
        "  document.head.append(script); })));" +
        "</" + "script><script src=\"" + address + "\"></" + "script>");
      inner.document.close();
      inner.postMessage = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
      };
      this.waiting = [];
      this.frame.onload = () => { for (const data of this.waiting.splice(0)) this.deliver(data); this.loaded = true; };
    }
    deliver(data) {
      this.frame.contentWindow.dispatchEvent(new this.frame.contentWindow.MessageEvent("message", { data }));
    }
    postMessage(data) {
      if (this.loaded) this.deliver(data); else this.waiting.push(data);
    }
    terminate() { this.frame.remove(); }
  };
}
