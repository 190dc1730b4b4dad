/** Coverage as bars: equal values, and similar ones on top. */

import type { Hit } from "../api/types";
import { count, percent } from "../words";

interface Shown {
  label: string;
  says: string;
  of: number;
  equal: number;
  alike: number | null;
}

/** How much of either column has a match in the other. */
export function Coverage({ hit }: { hit: Hit }) {
  const { equi, semantic } = hit;
  const yours = {
    label: "Coverage",
    says: "Share of your distinct values that have a match in this column.",
    of: hit.query_size,
    equal: equi.joinability,
    alike: semantic?.joinability ?? null,
  };
  const theirs = {
    label: "Reverse",
    says: "Share of the distinct values of this column that have a match in yours.",
    of: hit.target_size,
    equal: equi.reverse,
    alike: semantic?.reverse ?? null,
  };
  return (
    <div class="coverage">
      <Bar {...yours} />
      <Bar {...theirs} />
    </div>
  );
}

function Bar({ label, says, of, equal, alike }: Shown) {
  const both = Math.max(equal, alike ?? 0);
  const text = figures(of, equal, alike);
  return (
    <>
      <span class="bar-label" title={says}>
        {label}
      </span>
      <span class="bar" role="img" aria-label={`${label}: ${text}`}>
        {both > equal && <span class="bar-alike" style={{ width: `${both * 100}%` }} />}
        <span class="bar-equal" style={{ width: `${equal * 100}%` }} />
      </span>
      <span class="bar-figures" aria-hidden="true">
        {text}
      </span>
    </>
  );
}

function figures(of: number, equal: number, alike: number | null): string {
  const found = [`${percent(equal)} equal`];
  // The difference of what is shown, so that both add up to the share at the top.
  const more = alike === null ? 0 : shown(alike) - shown(equal);
  if (alike !== null && alike > equal) found.push(`${more > 0 ? more : "<1"}% similar`);
  return `${found.join(", ")} of ${count(of)}`;
}

/** A share in whole percents, as `percent` writes it. */
function shown(share: number): number {
  return share < 1 ? Math.min(99, Math.round(share * 100)) : 100;
}

/** Explains the two shades of the bars. */
export function CoverageLegend() {
  return (
    <p class="legend">
      <span class="swatch equal" /> equal values <span class="swatch alike" /> similar in meaning
    </p>
  );
}

export function Meter({ share, label }: { share: number; label: string }) {
  return (
    <span class="bar meter" role="img" aria-label={label} title={label}>
      <span class="bar-equal" style={{ width: `${share * 100}%` }} />
    </span>
  );
}
