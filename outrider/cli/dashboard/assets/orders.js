// Stop, restart and scale: each asks first, and says what came of it.
"use strict";
const Orders = (() => {
  const {byId, make, text, attribute, show, keyed} = Dom;
  const WHAT = {
    stop: ["Stop …", "Stop", (job) => `Stop ${job}? Its ranks may finish a save, then the job ends.`],
    restart: ["Restart …", "Restart", (job) => `Restart ${job}? All ranks stop and read the script again from its first line; steps since the last checkpoint are repeated. If the script cannot start, nothing is stopped.`],
    scale: ["Scale …", "Scale", (job) => `Scale ${job} to another number of members? It happens at the next checkpoint.`],
  };
  let job = "", wanted = null, post = null, asked = "";

  function set(name, may, members, send) {
    job = name; wanted = members; post = send;
    const allowed = Object.keys(WHAT).filter((what) => may[what]);
    show(byId("orders"), allowed.length > 0);
    keyed(byId("orders"), allowed, (what) => what, (what) => {
      const button = make("button", {type: "button"}, WHAT[what][0]);
      button.addEventListener("click", () => confirm(what));
      return button;
    }, () => {});
  }

  function confirm(what) {
    asked = what;
    text(byId("confirm-title"), `${WHAT[what][1]} ${job}`);
    text(byId("confirm-text"), WHAT[what][2](job));
    text(byId("confirm-yes"), WHAT[what][1]);
    show(byId("confirm-size"), what === "scale");
    if (what === "scale") byId("confirm-members").value = wanted || 1;
    byId("confirm").returnValue = "no";
    byId("confirm").showModal();
  }

  async function closed() {
    if (byId("confirm").returnValue !== "yes") return;
    const body = asked === "scale" ? {members: Number(byId("confirm-members").value)} : {};
    text(byId("ordered"), `${WHAT[asked][1]}: asking …`);
    const answer = await post(asked, body);
    text(byId("ordered"), answer.sentence || answer.problem || "There was no answer.");
    attribute(byId("ordered"), "class", answer.problem ? "bad" : "");
  }

  function bind() { byId("confirm").addEventListener("close", closed); }

  return {set, bind};
})();
