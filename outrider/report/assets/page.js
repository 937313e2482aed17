// Times in the viewer's zone beside UTC, and the timeline in place of its still picture.
(() => {
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const full = new Intl.DateTimeFormat(undefined, {dateStyle: "medium", timeStyle: "medium"});
  const short = new Intl.DateTimeFormat(undefined, {hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23"});
  const long = new Intl.DateTimeFormat(undefined, {month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", hourCycle: "h23"});
  for (const each of document.querySelectorAll("time")) {
    const utc = each.textContent.replace(/^\S+ (\S+) UTC$/, "$1 UTC");
    each.title = each.textContent;
    each.textContent = `${full.format(new Date(each.dateTime))} (${utc})`;
  }
  document.getElementById("zone").textContent = `Times are in ${zone}, with UTC in brackets.`;
  const live = document.getElementById("live");
  if (!live) return;
  const data = JSON.parse(document.getElementById("data").textContent);
  const axis = data.end > 864000 ? long : short;
  const clock = (unix, isShort) => (isShort ? axis : full).format(new Date(unix * 1000));
  live.hidden = false;
  document.getElementById("still").classList.add("replaced");
  Timeline.mount(live, data, clock, (number) => { location.hash = `fault-${Number(number)}`; });
  addEventListener("beforeprint", () => { for (const each of document.querySelectorAll("details")) each.open = true; });
})();
