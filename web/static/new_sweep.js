// Marks world sizes for which the live agents do not suffice while they are typed; without it the
// page marks those that it was loaded with, and the preview all of them.
(() => {
  "use strict";
  const field = document.getElementById("world_size");
  const mark = document.getElementById("world_size-beyond");
  if (!field || !mark) return;
  const live = Number(mark.dataset.agents);
  const rest = mark.textContent.slice(mark.textContent.indexOf(":"));
  field.addEventListener("input", () => {
    const sizes = field.value.split(/[,;\s]+/).filter((text) => /^[0-9]{1,15}$/.test(text));
    const beyond = [...new Set(sizes.map(Number))].filter((size) => size > live);
    beyond.sort((a, b) => a - b);
    mark.hidden = beyond.length === 0;
    mark.textContent = beyond.join(", ") + rest;
  });
})();
