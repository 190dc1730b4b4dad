/** Brings a file or pasted values to the service, then shows the columns that were read. */

import { useCallback, useRef, useState } from "preact/hooks";
import { ApiError } from "./api/client";
import { Latest } from "./api/latest";
import { api } from "./api/service";
import type { TableDetail } from "./api/types";
import { remember } from "./api/useRequest";
import { navigate } from "./navigate";
import { FILTERS } from "./route";
import { bytes, sourceKey } from "./words";

export interface Uploading {
  busy: boolean;
  error: unknown;
  start: (file: File) => void;
  paste: (values: string[], name: string) => void;
}

export function useUpload(most: number | undefined): Uploading {
  const latest = useRef(new Latest()).current;
  const [state, setState] = useState<{ busy: boolean; error: unknown }>({ busy: false, error: null });
  const run = useCallback(async (load: (signal: AbortSignal) => Promise<TableDetail>) => {
    setState({ busy: true, error: null });
    const outcome = await latest.run(load);
    if (outcome.state === "overtaken") return;
    setState({ busy: false, error: outcome.state === "failed" ? outcome.error : null });
    if (outcome.state === "failed") navigate({ view: "start", text: "" });
    else openUpload(outcome.value);
  }, []);
  const start = useCallback(
    (file: File) => {
      const tooLarge = most !== undefined && file.size > most;
      void run(async (signal) => {
        if (tooLarge) throw new ApiError("large", sizeText(file, most));
        return await api.upload(file, file.name, signal);
      });
    },
    [most],
  );
  const paste = (values: string[], name: string) =>
    void run((signal) => api.uploadValues(values, name, signal));
  return { ...state, start, paste };
}

/** Shows the columns to choose from; a column alone needs no choosing. */
export function openUpload(table: TableDetail): void {
  if (!table.upload) return;
  const source = { upload: table.upload };
  remember(sourceKey(source), table);
  const only = table.columns.length === 1 ? table.columns[0] : undefined;
  if (only?.indexed) navigate({ view: "search", source, column: only.name, filters: FILTERS });
  else navigate({ view: "table", source });
}

export function sizeText(file: { name: string; size: number }, most: number): string {
  return (
    `${file.name} has ${bytes(file.size)}; this service accepts up to ${bytes(most)}. ` +
    "Paste the values of the key column, or upload a file with that column only."
  );
}
