/** Speaks to the service: one place for addresses, the token and what can go wrong. */

import type {
  Edge,
  End,
  EnrichBody,
  Enriched,
  Found,
  Graph,
  JoinBody,
  Lake,
  PathJoin,
  Paths,
  Preview,
  Relations,
  Results,
  SearchBody,
  Similar,
  TableDetail,
  TableList,
} from "./types";

/** Why a call failed, in the kinds the page tells apart. */
export type Failure = "gone" | "token" | "missing" | "large" | "busy" | "refused" | "broken";

const KINDS: Record<number, Failure> = {
  401: "token",
  404: "missing",
  408: "busy",
  413: "large",
  429: "busy",
  502: "gone",
  503: "busy",
  504: "gone",
};

export class ApiError extends Error {
  constructor(
    readonly kind: Failure,
    message: string,
    readonly status = 0,
  ) {
    super(message);
  }
}

export interface Keep {
  read(): string | null;
  write(token: string): void;
  /** Hears of a token, or of none, that the service does not take. */
  refused(token: string | null): void;
}

type Parameters = Record<string, string | number | boolean | undefined>;

export interface FileOptions {
  format: "csv" | "parquet";
  neutralise: boolean;
}

export interface Fetched {
  blob: Blob;
  name: string;
}

export class Api {
  constructor(
    private readonly keep: Keep,
    private readonly base = "api/",
    private readonly fetcher: typeof fetch = (...call) => fetch(...call),
  ) {}

  lake = (signal: AbortSignal) => this.json<Lake>("lake", {}, { signal });

  tables = (text: string, offset: number, limit: number, signal: AbortSignal) =>
    this.json<TableList>("tables", { text, offset, limit }, { signal });

  find = (text: string, limit: number, signal: AbortSignal) =>
    this.json<Found>("find", { text, limit }, { signal });

  table = (name: string, signal: AbortSignal) =>
    this.json<TableDetail>("table", { name }, { signal });

  uploaded = (token: string, signal: AbortSignal) =>
    this.json<TableDetail>(`uploads/${encodeURIComponent(token)}`, {}, { signal });

  upload = (file: Blob, filename: string, signal: AbortSignal) =>
    this.json<TableDetail>("uploads", { filename }, { signal, method: "POST", body: file });

  uploadValues = (values: string[], name: string, signal: AbortSignal) =>
    this.post<TableDetail>("uploads/values", { values, name }, signal);

  async forget(token: string, signal: AbortSignal): Promise<void> {
    await this.call(`uploads/${encodeURIComponent(token)}`, {}, { signal, method: "DELETE" });
  }

  search = (body: SearchBody, signal: AbortSignal) => this.post<Results>("search", body, signal);

  /** Enriches; ``early`` hears of every table that is tried. */
  enrichInSteps = (body: EnrichBody, signal: AbortSignal, early: (at: Enriched) => void) =>
    this.inSteps<Enriched>("enrich/stream", body, signal, (found) => found.progress !== null && early(found));

  /** Searches; ``early`` hears of every answer before the last, hits by equal values first. */
  searchInSteps = (body: SearchBody, signal: AbortSignal, early: (results: Results) => void) =>
    this.inSteps<Results>("search/stream", body, signal, (found) => found.partial && early(found));

  preview = (body: JoinBody, rows: number, signal: AbortSignal) =>
    this.post<Preview>("join/preview", { ...body, rows }, signal);

  /** Keeps the joined table as an upload. */
  keepJoin = (body: JoinBody, signal: AbortSignal) => this.post<TableDetail>("join/keep", body, signal);

  /** The neighbourhood of a table; of none, an overview of the lake. */
  graph = (table: string, depth: number, least: number, limit: number, signal: AbortSignal) =>
    this.json<Graph>("graph", { table, depth, min_joinability: least, limit }, { signal });

  similar = (table: string, least: number, limit: number, signal: AbortSignal) =>
    this.json<Similar>("graph/similar", { table, min_joinability: least, limit }, { signal });

  paths = (from: string, to: string, least: number, longest: number, signal: AbortSignal) =>
    this.json<Paths>("graph/paths", { from, to, min_joinability: least, longest }, { signal });

  relations = (least: number, signal: AbortSignal) => this.json<Relations>("relations", { least }, { signal });

  /** Says that a join means something or not; null takes back what was said. */
  async judge(child: End, parent: End, accepted: boolean | null, signal: AbortSignal): Promise<void> {
    await this.post("feedback", { child, parent, accepted }, signal);
  }

  /** Runs the joins of a path as one, and gives its SQL. */
  joinPath = (path: Edge[], rows: number, signal: AbortSignal) =>
    this.post<PathJoin>("join/path", { path: path.map(({ a, b }) => ({ a: named(a), b: named(b) })), rows }, signal);

  /** Fetches the joined table; ``progress`` hears how many bytes have come. */
  async download(
    body: JoinBody,
    options: FileOptions,
    signal: AbortSignal,
    progress: (bytes: number) => void,
  ): Promise<Fetched> {
    return fetched(await this.call("join/download", { ...options }, { signal, ...asJson(body) }), options, progress);
  }

  /** Fetches an upload, such as an enriched table. */
  async downloadUpload(
    token: string,
    options: FileOptions,
    signal: AbortSignal,
    progress: (bytes: number) => void,
  ): Promise<Fetched> {
    const path = `uploads/${encodeURIComponent(token)}/download`;
    return fetched(await this.call(path, { ...options }, { signal }), options, progress);
  }

  private async json<T>(path: string, parameters: Parameters, init: RequestInit): Promise<T> {
    const answer = await this.call(path, parameters, init);
    try {
      return (await answer.json()) as T;
    } catch (error) {
      if (init.signal?.aborted) throw error;
      throw new ApiError("broken", "The answer of the service could not be read.");
    }
  }

  /** Asks for an answer that comes in lines; ``each`` hears of them all, the last is returned. */
  private async inSteps<T extends object>(
    path: string,
    body: unknown,
    signal: AbortSignal,
    each: (found: T) => void,
  ): Promise<T> {
    const answer = await this.call(path, {}, { signal, ...asJson(body) });
    let last: T | undefined;
    for await (const line of lines(answer)) {
      const found = JSON.parse(line) as T | { error: string };
      if ("error" in found) throw new ApiError("broken", found.error);
      last = found;
      each(found);
    }
    if (!last) throw new ApiError("broken", "The answer of the service could not be read.");
    return last;
  }

  private post<T>(path: string, body: unknown, signal: AbortSignal): Promise<T> {
    return this.json<T>(path, {}, { signal, ...asJson(body) });
  }

  private async call(path: string, parameters: Parameters, init: RequestInit): Promise<Response> {
    const headers = new Headers(init.headers);
    // Messages then name the page's controls, not fields of requests.
    headers.set("Deepjoin-Words", "page");
    const token = this.keep.read();
    if (token) headers.set("Authorization", `Bearer ${token}`);
    const answer = await this.reach(`${this.base}${path}${query(parameters)}`, { ...init, headers });
    if (answer.status === 401 && !init.signal?.aborted) this.keep.refused(token);
    if (!answer.ok) throw await refusal(answer);
    return answer;
  }

  private async reach(address: string, init: RequestInit): Promise<Response> {
    try {
      return await this.fetcher(address, init);
    } catch (error) {
      if (init.signal?.aborted) throw error;
      throw new ApiError("gone", "The service does not answer.");
    }
  }
}

function named({ table, column }: Edge["a"]): { table: string; column: string } {
  return { table, column };
}

async function* lines(answer: Response): AsyncGenerator<string> {
  const reader = answer.body?.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const part = await reader?.read();
    if (!part || part.done) break;
    const found = (rest + part.value).split("\n");
    rest = found.pop() ?? "";
    yield* found;
  }
  if (rest) yield rest;
}

function asJson(body: unknown): RequestInit {
  return {
    method: "POST",
    body: JSON.stringify(body),
    headers: { "Content-Type": "application/json" },
  };
}

function query(parameters: Parameters): string {
  const given = Object.entries(parameters).filter(([, value]) => value !== undefined);
  const text = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return text ? `?${text}` : "";
}

async function refusal(answer: Response): Promise<ApiError> {
  const body: unknown = await answer.json().catch(() => null);
  const said = body && typeof body === "object" && "error" in body ? String(body.error) : "";
  const kind = KINDS[answer.status] ?? (answer.status >= 500 ? "broken" : "refused");
  return new ApiError(kind, said || `The service answered with ${answer.status}.`, answer.status);
}

/** Reads the name out of a Content-Disposition header, the UTF-8 one first. */
export function fileName(header: string | null): string | null {
  const encoded = header?.match(/filename\*=utf-8''([^;]+)/i)?.[1];
  if (encoded) return decodeURIComponent(encoded);
  return header?.match(/filename="?([^";]+)"?/i)?.[1] ?? null;
}

async function fetched(answer: Response, { format }: FileOptions, progress: (bytes: number) => void): Promise<Fetched> {
  const name = fileName(answer.headers.get("Content-Disposition")) ?? `table.${format}`;
  return { blob: await gather(answer, progress), name };
}

async function gather(answer: Response, progress: (bytes: number) => void): Promise<Blob> {
  const parts: BlobPart[] = [];
  let bytes = 0;
  const reader = answer.body?.getReader();
  for (;;) {
    const part = await reader?.read();
    if (!part || part.done) break;
    parts.push(part.value);
    progress((bytes += part.value.byteLength));
  }
  return new Blob(parts, { type: answer.headers.get("Content-Type") ?? "" });
}
