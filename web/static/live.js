// Keeps the parts marked data-live up to date while the page is seen. Pages work without it.
(() => {
  "use strict";
  const BUSY_MS = 2000;
  const QUIET_MS = 10000;
  const PATIENCE_MS = 8000;

  // The answer to a refused form stands at an address that cannot be read again.
  const address = document.currentScript.dataset.address || location.pathname + location.search;
  const note = document.getElementById("offline");
  const isBusy = () => document.querySelector("[data-busy]") !== null;

  function replace(fresh) {
    for (const part of document.querySelectorAll("[data-live]")) {
      const next = fresh.getElementById(part.id);
      if (!next || next.isEqualNode(part) || isInUse(part)) continue;
      const open = [...part.querySelectorAll("details[open][id]")].map((d) => d.id);
      const focused = part.contains(document.activeElement) ? document.activeElement.id : "";
      part.replaceWith(document.adoptNode(next));
      for (const id of open) document.getElementById(id)?.setAttribute("open", "");
      if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
    }
  }

  // Nothing is taken away from under somebody's cursor or selection.
  function isInUse(part) {
    const active = document.activeElement;
    if (part.contains(active) && !active.id) return true;
    const selection = document.getSelection();
    return selection && !selection.isCollapsed && part.contains(selection.anchorNode);
  }

  async function refresh() {
    if (!document.hidden) {
      try {
        const answer = await fetch(address, {
          headers: { Accept: "text/html" },
          signal: AbortSignal.timeout(PATIENCE_MS),
        });
        if (!answer.ok) throw new Error(String(answer.status));
        replace(new DOMParser().parseFromString(await answer.text(), "text/html"));
        note.hidden = true;
      } catch {
        note.hidden = false;
      }
    }
    setTimeout(refresh, isBusy() ? BUSY_MS : QUIET_MS);
  }

  setTimeout(refresh, isBusy() ? BUSY_MS : QUIET_MS);
  // A page from the browser's history is old, and its buttons may be disabled.
  window.addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
  document.addEventListener("submit", (event) => {
    // A second press of a button must not send the form twice.
    for (const button of event.target.querySelectorAll("button")) {
      setTimeout(() => { button.disabled = true; });
    }
  });
})();
