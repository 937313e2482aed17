// Stop, restart and scale: each asks first, and says what came of it.
"use strict";
const Orders = (() => {
  const {byId, make, text, attribute, show, keyed} = Dom;
  const WHAT = {
    stop: ["Stop …", "Stop", (job) => `Stop ${job}? Its ranks may finish a save, then the job ends.`],
    restart: ["Restart …", "Restart", (job) => `Restart ${job}? All ranks stop and read the script again from its first line; steps since the last checkpoint are repeated. If the script cannot start, nothing is stopped.`],
    scale: ["Scale …", "Scale", (job) => `Scale ${job} to another number of members? It happens at the next checkpoint.`],
  };
  let shown = {job: "", wanted: null, sizes: [], state: "", post: null}, asked = null, said = "";

  /** `sizes`: the fewest and the most members, null if not known. `state`: when it changes, the answer to the last order is old. */
  function set(job, may, wanted, sizes, state, post) {
    shown = {job, wanted, sizes, state, post};
    if (said && said !== state) clear();
    const allowed = Object.keys(WHAT).filter((what) => may[what]);
    show(byId("orders"), allowed.length > 0);
    keyed(byId("orders"), allowed, (what) => what, (what) => {
      const button = make("button", {type: "button"}, WHAT[what][0]);
      button.addEventListener("click", () => confirm(what));
      return button;
    }, () => {});
  }

  /** What is asked belongs to the job that is shown now, whatever is shown when it is answered. */
  function confirm(what) {
    const {job, wanted, sizes: [least, most], post} = shown, isScale = what === "scale", size = byId("confirm-members");
    asked = {what, job, post};
    text(byId("confirm-title"), `${WHAT[what][1]} ${job}`);
    text(byId("confirm-text"), WHAT[what][2](job));
    text(byId("confirm-yes"), WHAT[what][1]);
    show(byId("confirm-size"), isScale);
    size.disabled = !isScale; size.min = least || 1; size.max = most || 10000; size.value = wanted || size.min;
    byId("confirm").returnValue = "no";
    byId("confirm").showModal();
    (isScale ? size : byId("confirm-no")).focus();
  }

  async function closed() {
    const {what, job, post} = asked, buttons = [...byId("orders").children];
    if (byId("confirm").returnValue !== "yes") return;
    const body = what === "scale" ? {members: Number(byId("confirm-members").value)} : {};
    answered(`${WHAT[what][1]} ${job}: asking …`, "");
    for (const button of buttons) button.disabled = true;
    const answer = await post(job, what, body);
    for (const button of buttons) button.disabled = false;
    if (job === shown.job) answered(answer.sentence || answer.problem || "There was no answer.", answer.problem ? "bad" : "");
  }

  function answered(sentence, kind) { said = shown.state; text(byId("ordered"), sentence); attribute(byId("ordered"), "class", kind); }

  /** Takes the answer to the last order away, and the question. */
  function clear() {
    said = ""; text(byId("ordered"), "");
    if (byId("confirm").open) byId("confirm").close("no");
  }

  function bind() { byId("confirm").addEventListener("close", closed); }

  return {set, bind, clear};
})();
