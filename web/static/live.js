// Keeps the parts marked data-live up to date while the page is seen. Pages work without it.
(() => {
  "use strict";
  const BUSY_MS = 2000;
  const QUIET_MS = 10000;
  const TOLD_MS = 30000; // while the server tells: what changes by itself, such as ages
  const REST_MS = 1000;
  const PATIENCE_MS = 8000;

  const script = document.currentScript;
  // The answer to a refused form stands at an address that cannot be read again.
  const address = script.dataset.address || location.pathname + location.search;
  const note = document.getElementById("offline");
  const AWAY = note.textContent;
  const ENDED = "The sign-in has ended; this page shows the last known state. Load it again to sign in.";
  const isBusy = () => document.querySelector("[data-busy]") !== null;
  let events = null;
  let timer = 0;
  let isRefreshing = false;
  let isStale = false;

  function replace(fresh) {
    for (const list of document.querySelectorAll("[data-live-list]")) reconcile(list, fresh);
    for (const part of document.querySelectorAll("[data-live]")) {
      const next = fresh.getElementById(part.id);
      if (!next || next.isEqualNode(part) || isInUse(part)) continue;
      const folds = [...part.querySelectorAll("details[id]")].map((d) => [d.id, d.open]);
      const focused = part.contains(document.activeElement) ? document.activeElement.id : "";
      part.replaceWith(document.adoptNode(next));
      for (const [id, isOpen] of folds) document.getElementById(id)?.toggleAttribute("open", isOpen);
      if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
    }
  }

  // Children that come and go, such as charts. Those that stay are not touched: a chart keeps its
  // zoom, and what is live within it is replaced afterwards.
  function reconcile(list, fresh) {
    const next = fresh.getElementById(list.id);
    if (!next) return;
    const wanted = [...next.children];
    const ids = new Set(wanted.map((child) => child.id));
    for (const child of [...list.children]) if (!ids.has(child.id)) child.remove();
    wanted.forEach((child, place) => {
      if (list.children[place]?.id === child.id) return;
      const known = [...list.children].find((one) => one.id === child.id);
      list.insertBefore(known ?? document.adoptNode(child), list.children[place] ?? null);
    });
  }

  // Nothing is taken away from under somebody's cursor or selection.
  function isInUse(part) {
    const active = document.activeElement;
    if (part.contains(active) && !active.id) return true;
    const selection = document.getSelection();
    return selection && !selection.isCollapsed && part.contains(selection.anchorNode);
  }

  async function refresh() {
    clearTimeout(timer);
    isStale = false;
    if (!document.hidden) {
      isRefreshing = true;
      try {
        const answer = await fetch(address, {
          headers: { Accept: "text/html", "X-Live-Look": "1" }, // see web/request_body.py
          signal: AbortSignal.timeout(PATIENCE_MS),
        });
        // A page that now leads to another is one to sign in on.
        note.textContent = answer.redirected ? ENDED : AWAY;
        if (!answer.ok || answer.redirected) throw new Error(String(answer.status));
        replace(new DOMParser().parseFromString(await answer.text(), "text/html"));
        note.hidden = true;
      } catch {
        note.hidden = false;
      }
      isRefreshing = false;
    }
    plan();
  }

  // The next look: soon if something changed meanwhile, seldom while the server tells.
  function plan() {
    clearTimeout(timer);
    // A part that is complete comes without the mark; then there is nothing to follow any more.
    if (!document.querySelector("[data-live], [data-live-list]")) return;
    const isTold = events !== null && events.readyState === EventSource.OPEN && note.hidden;
    timer = setTimeout(refresh, isStale ? REST_MS : isTold ? TOLD_MS : isBusy() ? BUSY_MS : QUIET_MS);
  }

  // One of few connections, so only while the page is seen. A server that has none left says so,
  // which ends it, and the page looks by itself.
  function listen() {
    const where = script.dataset.events;
    if (!where || document.hidden || events !== null) return;
    events = new EventSource(where);
    events.addEventListener("changed", () => {
      if (isStale) return; // its look is planned already
      isStale = true;
      if (!isRefreshing) plan();
    });
    events.addEventListener("open", plan);
    events.addEventListener("error", plan);
  }

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      events?.close();
      events = null;
    } else {
      listen();
      refresh();
    }
  });

  listen();
  plan();
  window.addEventListener("pagehide", () => { events?.close(); events = null; });
  // A page from the browser's history is old, and its buttons may be disabled.
  window.addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
  document.addEventListener("submit", (event) => {
    // A second press of a button must not send the form twice.
    for (const button of event.target.querySelectorAll("button")) {
      setTimeout(() => { button.disabled = true; });
    }
  });
})();
