// When each phase started and ended, as far as its condition tells.
import { parseTime } from "./text.ts";
import type { Phase } from "./types.ts";

export type PhaseState = "done" | "waiting" | "stalled" | "blocked" | "unknown";

export interface Step {
  phase: Phase;
  state: PhaseState;
  /** When the phase became ready, or since when it waits. */
  since: number | undefined;
  /** How long the phase took, if it became ready after its predecessor. */
  took: number | undefined;
  /** The part of the whole that the phase takes, from 0 to 1. */
  bar: { from: number; to: number } | undefined;
}

export function stateOfPhase(phase: Phase, stalledReason: string): PhaseState {
  if (phase.status === "True") return "done";
  if (phase.status === "Unknown") return "blocked";
  if (phase.status === "") return "unknown";
  return stalledReason !== "" && phase.reason === stalledReason ? "stalled" : "waiting";
}

/**
 * A phase starts when its predecessor is done, and the first when the object is created. A phase that is not configured
 * takes no time. A phase that became ready before its predecessor, as after a later failure of the predecessor, has no
 * duration.
 */
export function timeline(phases: Phase[], created: string, stalledReason: string, now: number): Step[] {
  let start = parseTime(created);
  const first = start;
  const spans: ([number, number] | undefined)[] = [];
  const steps = phases.map((phase): Step => {
    const state = stateOfPhase(phase, stalledReason);
    const since = parseTime(phase.since);
    const end = state === "done" ? since : state === "waiting" || state === "stalled" ? now : undefined;
    const from = state === "done" ? start : since;
    const ordered = from !== undefined && end !== undefined && end >= from;
    spans.push(ordered ? [from, end] : undefined);
    const took = ordered && state === "done" ? end - from : undefined;
    if (state !== "unknown") start = state === "done" && ordered ? end : undefined;
    return { phase, state, since, took, bar: undefined };
  });
  const last = Math.max(...spans.map((span) => span?.[1] ?? 0));
  if (first !== undefined && last > first) {
    steps.forEach((step, i) => {
      const span = spans[i];
      if (span) step.bar = { from: (span[0] - first) / (last - first), to: (span[1] - first) / (last - first) };
    });
  }
  return steps;
}
