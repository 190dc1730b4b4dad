/** Gets a table as a file. */

import { useEffect, useRef, useState } from "preact/hooks";
import { Latest } from "../api/latest";
import type { FileOptions, Fetched } from "../api/client";
import { Tick } from "../parts/Choice";
import { Icon } from "../parts/Icon";
import { asApiError } from "../parts/Notice";
import { save } from "../save";
import { bytes, explain } from "../words";

type Format = FileOptions["format"];
/** Fetches the file; the last argument hears how many bytes have come. */
export type GetFile = (options: FileOptions, signal: AbortSignal, progress: (bytes: number) => void) => Promise<Fetched>;

interface State {
  busy: Format | null;
  came: number;
  said: string;
  failed: boolean;
}

const IDLE: State = { busy: null, came: 0, said: "", failed: false };

export function Download({ title, file }: { title: string; file: GetFile }) {
  const [neutralise, setNeutralise] = useState(false);
  const [state, setState] = useState(IDLE);
  const latest = useRef(new Latest()).current;
  useEffect(() => () => latest.abort(), []);
  const get = async (format: Format) => {
    setState({ ...IDLE, busy: format });
    const options = { format, neutralise: neutralise && format === "csv" };
    const outcome = await latest.run((signal) =>
      file(options, signal, (came) => setState({ ...IDLE, busy: format, came })),
    );
    if (outcome.state === "overtaken") return setState(IDLE);
    if (outcome.state === "failed") {
      const { title, text } = explain(asApiError(outcome.error));
      return setState({ ...IDLE, said: `${title}. ${text}`, failed: true });
    }
    save(outcome.value);
    setState({ ...IDLE, said: `${outcome.value.name}, ${bytes(outcome.value.blob.size)}, saved.` });
  };
  return (
    <>
      <h2 id="download">{title}</h2>
      <div class="actions">
        <button type="button" class="primary" disabled={state.busy !== null} onClick={() => void get("csv")}>
          Download CSV
        </button>
        <button type="button" disabled={state.busy !== null} onClick={() => void get("parquet")}>
          Download Parquet
        </button>
        {state.busy && (
          <button type="button" class="quiet" onClick={() => latest.abort()}>
            <Icon name="close" size={15} /> Stop
          </button>
        )}
      </div>
      <Tick checked={neutralise} onTick={setNeutralise}>
        Make the CSV safe for spreadsheets: put ' before cells that would run as formulas
      </Tick>
      <p class={state.failed ? "bad" : "hint"} role="status">
        {state.busy ? `${bytes(state.came)} so far…` : state.said}
      </p>
    </>
  );
}
