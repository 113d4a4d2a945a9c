(() => {
  "use strict";
  const root = document.documentElement;
  const theme = document.querySelector(".theme");
  const isDark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const label = () => { theme.textContent = isDark() ? "Light" : "Dark"; };
  theme.hidden = false;
  label();
  theme.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; label(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", label);

  if (!HTMLElement.prototype.showPopover) { return; }
  // Without this script a number still opens its evidence when it is pressed; with it, hover and focus do so too.
  let timer = 0;
  const how = new WeakMap();
  const boxOf = (button) => document.getElementById(button.getAttribute("popovertarget"));
  const place = (button, box) => {
    const wide = innerWidth > 736;
    box.classList.toggle("placed", wide);
    box.style.left = box.style.top = "";
    if (!wide) { return; }
    const at = button.getBoundingClientRect();
    const size = box.getBoundingClientRect();
    const left = Math.max(8, Math.min(at.left + at.width / 2 - size.width / 2, innerWidth - size.width - 8));
    const below = at.bottom + 6;
    const top = below + size.height < innerHeight - 8 ? below : Math.max(8, at.top - size.height - 6);
    box.style.left = `${left}px`;
    box.style.top = `${top}px`;
  };
  const show = (button, reason) => {
    const box = boxOf(button);
    if (!box.matches(":popover-open")) { box.showPopover(); how.set(box, reason); button.setAttribute("aria-expanded", "true"); }
    place(button, box);
  };
  const hide = (button, reason) => {
    const box = boxOf(button);
    if (box.matches(":popover-open") && (!reason || how.get(box) === reason)) { box.hidePopover(); }
  };
  for (const button of document.querySelectorAll(".ev")) {
    const box = boxOf(button);
    box.addEventListener("toggle", (event) => { if (event.newState === "closed") { button.removeAttribute("aria-expanded"); } });
    button.addEventListener("pointerenter", (event) => {
      if (event.pointerType !== "mouse") { return; }
      clearTimeout(timer);
      timer = setTimeout(() => show(button, "hover"), 90);
    });
    button.addEventListener("pointerleave", () => { clearTimeout(timer); hide(button, "hover"); });
    button.addEventListener("focus", () => { if (button.matches(":focus-visible")) { show(button, "focus"); } });
    button.addEventListener("blur", () => hide(button));
    button.addEventListener("click", (event) => {
      event.preventDefault();
      clearTimeout(timer);
      if (!box.matches(":popover-open")) { show(button, "press"); }
      else if (how.get(box) === "press") { hide(button); }
      else { how.set(box, "press"); }
    });
  }
  addEventListener("scroll", () => { for (const box of document.querySelectorAll(".evidence.placed:popover-open")) { box.hidePopover(); } }, { passive: true });
})();
