// Times, durations and counts as people read them.

const units: [seconds: number, letter: string][] = [
  [86400, "d"],
  [3600, "h"],
  [60, "m"],
  [1, "s"],
];

/** Prints a duration as kubectl does: at most two units, and one from ten on. */
export function duration(milliseconds: number): string {
  const seconds = Math.max(0, Math.floor(milliseconds / 1000));
  for (const [i, [size, letter]] of units.entries()) {
    if (seconds < size) continue;
    const whole = Math.floor(seconds / size);
    const next = units[i + 1];
    const rest = next ? Math.floor((seconds % size) / next[0]) : 0;
    return whole < 10 && next && rest > 0 ? `${whole}${letter}${rest}${next[1]}` : `${whole}${letter}`;
  }
  return "0s";
}

/** Milliseconds since the epoch, or undefined for what is not a time. */
export function parseTime(text: string | undefined): number | undefined {
  if (!text) return undefined;
  const time = Date.parse(text);
  return Number.isNaN(time) || time <= 0 ? undefined : time;
}

export function age(time: string | undefined, now: number): string {
  const at = parseTime(time);
  return at === undefined ? "" : duration(now - at);
}

const moment = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

export function absolute(time: string | undefined): string {
  const at = parseTime(time);
  return at === undefined ? "" : moment.format(at);
}

/** The day of a time in the time zone of the browser, as YYYY-MM-DD. */
export function day(time: string): string {
  const at = parseTime(time);
  if (at === undefined) return "";
  const date = new Date(at);
  const two = (n: number) => String(n).padStart(2, "0");
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
}

const counts = new Intl.NumberFormat();

export function count(n: number): string {
  return counts.format(n);
}

/** A count with its noun: "1 object", "2 objects". */
export function counted(n: number, noun: string): string {
  return `${count(n)} ${noun}${n === 1 ? "" : "s"}`;
}

/** Words of a reason or phase: "RolloutProgressing" becomes "Rollout progressing", "KeyAPIMissing" "Key API missing". */
export function words(name: string): string {
  return name
    .replace(/([a-z0-9])([A-Z])/g, "$1 $2")
    .replace(/([A-Z]+)([A-Z][a-z])/g, "$1 $2")
    .split(" ")
    .map((word, i) => (i === 0 || word === word.toUpperCase() ? word : word.toLowerCase()))
    .join(" ");
}

const initials = new Set(["url", "uri", "id", "ip"]);

/** The name of a field as a heading: "readyReplicas" becomes "Ready replicas", "accountID" "Account ID", "url" "URL". */
export function title(name: string): string {
  return words(name.charAt(0).toUpperCase() + name.slice(1))
    .split(" ")
    .map((word) => (initials.has(word.toLowerCase()) ? word.toUpperCase() : word))
    .join(" ");
}
