// Marks world sizes for which the live agents do not suffice while they are typed; without it the
// page marks those that it was loaded with, and the preview all of them.
(() => {
  "use strict";
  const field = document.getElementById("world_size");
  const perAgent = document.getElementById("ranks_per_agent");
  const mark = document.getElementById("world_size-beyond");
  if (!field || !perAgent || !mark) return;
  const live = Number(mark.dataset.agents);
  const rest = mark.textContent.slice(mark.textContent.indexOf(":"));
  const numbers = (input) =>
    input.value.split(/[,;\s]+/).filter((text) => /^[0-9]{1,15}$/.test(text)).map(Number);
  const update = () => {
    const counts = numbers(perAgent).filter((count) => count > 0);
    const most = live * (counts.length ? Math.min(...counts) : 1);
    const beyond = [...new Set(numbers(field))].filter((size) => size > most);
    beyond.sort((a, b) => a - b);
    mark.hidden = beyond.length === 0;
    mark.textContent = beyond.join(", ") + rest;
  };
  field.addEventListener("input", update);
  perAgent.addEventListener("input", update);
})();
