export interface Line {
  sign: " " | "-" | "+";
  text: string;
}

/** The lines of two texts: which were removed, which were added, and which are in both. */
export function diff(before: string[], after: string[]): Line[] {
  // common[i][j] is the length of the longest common subsequence of before[i:] and after[j:].
  const common = Array.from({ length: before.length + 1 }, () => new Uint32Array(after.length + 1));
  const at = (i: number, j: number) => common[i]?.[j] ?? 0;
  for (let i = before.length - 1; i >= 0; i--) {
    for (let j = after.length - 1; j >= 0; j--) {
      common[i]![j] = before[i] === after[j] ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1));
    }
  }
  const lines: Line[] = [];
  let i = 0;
  let j = 0;
  while (i < before.length || j < after.length) {
    if (i < before.length && j < after.length && before[i] === after[j]) {
      lines.push({ sign: " ", text: before[i++]! });
      j++;
    } else if (i < before.length && (j === after.length || at(i + 1, j) >= at(i, j + 1))) {
      lines.push({ sign: "-", text: before[i++]! });
    } else {
      lines.push({ sign: "+", text: after[j++]! });
    }
  }
  return lines;
}

/** Leaves out unchanged lines that are farther than three lines from a change. */
export function hunks(lines: Line[]): Line[][] {
  const near = 3;
  const parts: Line[][] = [];
  let last = -Infinity;
  lines.forEach((line, i) => {
    const close = lines.slice(Math.max(0, i - near), i + near + 1).some((other) => other.sign !== " ");
    if (!close) return;
    if (i !== last + 1) parts.push([]);
    parts.at(-1)!.push(line);
    last = i;
  });
  return parts;
}
