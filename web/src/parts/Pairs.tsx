/** Doubtful pairs of values, for people to accept or reject, and what they decided before. */

import type { PairDecision, Preview } from "../api/types";
import { asCsv, type Pair } from "../decisions";
import { save } from "../save";
import { counted, percent } from "../words";
import { Name } from "./Name";

interface PairsProps {
  doubtful: Preview["doubtful"];
  decisions: PairDecision[];
  onDecide: (pair: Pair, accepted: boolean | null) => void;
}

export function Pairs({ doubtful, decisions, onDecide }: PairsProps) {
  if (doubtful.length + decisions.length === 0) return null;
  const download = () =>
    save({ blob: new Blob([asCsv(decisions)], { type: "text/csv" }), name: "decisions.csv" });
  return (
    <details class="panel pairs" open={doubtful.length > 0 && doubtful.length <= 5}>
      <summary>
        {doubtful.length > 0 && `${counted(doubtful.length, "doubtful pair")} to decide`}
        {doubtful.length > 0 && decisions.length > 0 && ", "}
        {decisions.length > 0 && `${counted(decisions.length, "pair")} decided`}
      </summary>
      <ul aria-label="Doubtful pairs">
        {doubtful.map(({ query, target, chance }) => (
          <li key={`${query}\n${target}`}>
            <Both query={query} target={target} />{" "}
            <span class="hint">{percent(chance)} likely to mean the same</span>{" "}
            <Button name="Accept" of={{ query, target }} onPress={() => onDecide({ query, target }, true)} />{" "}
            <Button name="Reject" of={{ query, target }} onPress={() => onDecide({ query, target }, false)} />
          </li>
        ))}
      </ul>
      {decisions.length > 0 && (
        <>
          <ul aria-label="Decided pairs">
            {decisions.map(({ query, target, accepted }) => (
              <li key={`${query}\n${target}`}>
                <Both query={query} target={target} />{" "}
                <span class="badge">{accepted ? "accepted" : "rejected"} by you</span>{" "}
                <Button name="Undo" of={{ query, target }} onPress={() => onDecide({ query, target }, null)} />
              </li>
            ))}
          </ul>
          <p class="hint">
            Kept in this browser, for every join with this column.{" "}
            <button type="button" class="quiet small" onClick={download}>
              Save decisions.csv
            </button>
          </p>
        </>
      )}
    </details>
  );
}

function Both({ query, target }: Pair) {
  return (
    <>
      <Name text={query} most={60} class="strong" /> ≈ <Name text={target} most={60} class="chip" />
    </>
  );
}

function Button({ name, of, onPress }: { name: string; of: Pair; onPress: () => void }) {
  return (
    <button type="button" class="quiet small" onClick={onPress}>
      {name}
      <span class="unseen">
        {" "}
        {of.query.slice(0, 80)} as {of.target.slice(0, 80)}
      </span>
    </button>
  );
}
