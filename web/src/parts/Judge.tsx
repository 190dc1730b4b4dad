/** What a person says of a join: accept it, reject it, or take that back. */

import { useEffect, useRef, useState } from "preact/hooks";
import { Latest } from "../api/latest";
import { api } from "../api/service";
import type { End } from "../api/types";
import { renew } from "../api/useRequest";
import { useLake } from "../lake";
import { explain } from "../words";
import { asApiError } from "./Notice";

interface JudgeProps {
  child: End;
  parent: End;
  decided: "accepted" | "rejected" | undefined;
  /** What is judged, for those who hear the buttons and do not see where they are. */
  what: string;
}

export function Judge({ child, parent, decided, what }: JudgeProps) {
  const lake = useLake();
  const latest = useRef(new Latest()).current;
  const [state, setState] = useState({ busy: false, failed: "" });
  useEffect(() => () => latest.abort(), []);
  // A column without a name cannot be known again.
  if (!lake?.can_judge || !child.columns.every(Boolean)) return null;
  const say = async (accepted: boolean | null) => {
    setState({ busy: true, failed: "" });
    const outcome = await latest.run((signal) => api.judge(child, parent, accepted, signal));
    if (outcome.state === "failed") setState({ busy: false, failed: explain(asApiError(outcome.error)).text });
    if (outcome.state !== "done") return;
    setState({ busy: false, failed: "" });
    renew();
  };
  const button = (label: string, accepted: boolean | null) => (
    <button type="button" class="quiet small" disabled={state.busy} onClick={() => void say(accepted)}>
      {label}
      <span class="unseen"> {what}</span>
    </button>
  );
  return (
    <span class="judge">
      {decided ? (
        <>
          <span class="badge">{decided} by a person</span> {button("Undo", null)}
        </>
      ) : (
        <>
          {button("Accept", true)} {button("Reject", false)}
        </>
      )}
      {state.failed && (
        <span class="bad" role="status">
          {state.failed}
        </span>
      )}
    </span>
  );
}
