/** Where the steps of an enrichment are drawn: how deep in the tree, and where each gain begins. */

export interface Fall {
  /** Shares of the width. */
  from: number;
  size: number;
}

/** How many joins lead to each step; a parent always comes before its children. */
export function depths(steps: readonly { parent: number }[]): number[] {
  const found: number[] = [];
  for (const { parent } of steps) found.push(parent < 0 ? 0 : (found[parent] ?? 0) + 1);
  return found;
}

/** Bars of a waterfall: each begins where the one before ended, on a scale that holds them all. */
export function falls(gains: readonly number[], before: number): Fall[] {
  const marks = [before];
  for (const gain of gains) marks.push((marks[marks.length - 1] ?? before) + gain);
  const least = Math.min(...marks);
  const width = Math.max(...marks) - least || 1;
  return gains.map((gain, place) => ({
    from: (Math.min(marks[place] ?? 0, marks[place + 1] ?? 0) - least) / width,
    size: Math.abs(gain) / width,
  }));
}
