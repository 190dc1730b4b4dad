import { describe, expect, it, vi } from "vitest";
import { Api, ApiError, fileName } from "../src/api/client";
import { Latest } from "../src/api/latest";
import { Recent } from "../src/api/recent";
import { FILTERS } from "../src/route";
import { searchBody } from "../src/hits";

const signal = () => new AbortController().signal;
const nobody = { read: () => null, write: () => undefined, refused: () => undefined };

function answering(status: number, body: unknown, headers: Record<string, string> = {}) {
  const text = typeof body === "string" ? body : JSON.stringify(body);
  return vi.fn<typeof fetch>(async () => new Response(text, { status, headers }));
}

describe("only the newest request counts", () => {
  it("whichever is answered first", async () => {
    const latest = new Latest();
    const signals: AbortSignal[] = [];
    let answerFirst: (text: string) => void = () => undefined;
    const first = latest.run((own) => {
      signals.push(own);
      return new Promise<string>((resolve) => (answerFirst = resolve));
    });
    const second = latest.run(async () => "new");
    answerFirst("old");
    expect(await first).toEqual({ state: "overtaken" });
    expect(await second).toEqual({ state: "done", value: "new" });
    expect(signals[0]?.aborted).toBe(true);
  });

  it("and an aborted one is no error", async () => {
    const latest = new Latest();
    const gone = latest.run(
      (own) => new Promise((_, fail) => own.addEventListener("abort", () => fail(own.reason))),
    );
    latest.abort();
    expect(await gone).toEqual({ state: "overtaken" });
  });

  it("a failure of the newest is told", async () => {
    const error = new Error("no");
    expect(await new Latest().run(() => Promise.reject(error))).toEqual({ state: "failed", error });
  });
});

describe("recent answers", () => {
  it("are forgotten with time and number", () => {
    let now = 0;
    const recent = new Recent(2, 100, () => now);
    recent.set("a", 1);
    recent.set("b", 2);
    recent.set("c", 3);
    expect([recent.get("a"), recent.get("b"), recent.get("c")]).toEqual([undefined, 2, 3]);
    now = 101;
    expect(recent.get("c")).toBeUndefined();
  });
});

describe("a search in steps", () => {
  const of = (...found: object[]) =>
    new Api(nobody, "api/", answering(200, found.map((one) => `${JSON.stringify(one)}\n`).join("")));

  it("hears of early answers and returns the last", async () => {
    const partial = { text: "equal values", done: 0, total: 3 };
    const heard: object[] = [];
    const api = of({ hits: [1], partial }, { hits: [1, 2] });
    expect(await api.searchInSteps({ query: { table: "t" } }, signal(), (one) => heard.push(one))).toEqual({ hits: [1, 2] });
    expect(heard).toEqual([{ hits: [1], partial }]);
  });

  it("fails where its last line says so, or where there is none", async () => {
    const failing = of({ hits: [], partial: { text: "", done: 0, total: 1 } }, { error: "why" });
    const search = (api: Api) => api.searchInSteps({ query: { table: "t" } }, signal(), () => undefined);
    await expect(search(failing)).rejects.toThrow("why");
    await expect(search(of())).rejects.toThrow("could not be read");
  });
});

describe("the client", () => {
  it("writes names as parameters and sends the token", async () => {
    const fetcher = answering(200, {});
    const api = new Api({ ...nobody, read: () => "s3cret" }, "api/", fetcher);
    await api.table("a/b &?#.csv", signal());
    const [address, init] = fetcher.mock.calls[0] ?? [];
    expect(address).toBe("api/table?name=a%2Fb+%26%3F%23.csv");
    expect(new Headers(init?.headers).get("Authorization")).toBe("Bearer s3cret");
  });

  it.each([
    [400, "refused"],
    [401, "token"],
    [404, "missing"],
    [408, "busy"],
    [413, "large"],
    [422, "refused"],
    [500, "broken"],
    [503, "busy"],
    [502, "gone"],
  ])("tells %i as %s, in the words of the service", async (status, kind) => {
    const api = new Api(nobody, "api/", answering(status, { error: "what came" }));
    const error = await api.lake(signal()).catch((caught: unknown) => caught);
    expect(error).toMatchObject({ kind, message: "what came", status });
  });

  it("tells of a refused token, whatever was asked, unless that was given up", async () => {
    const refused = vi.fn();
    const keep = { ...nobody, read: () => "old", refused };
    const api = new Api(keep, "api/", answering(401, { error: "no" }));
    const body = { query: { table: "t", column: "c" } };
    await expect(api.search(body, signal())).rejects.toMatchObject({ kind: "token" });
    await expect(api.tables("", 0, 9, signal())).rejects.toMatchObject({ kind: "token" });
    expect(refused.mock.calls).toEqual([["old"], ["old"]]);
    await expect(api.lake(AbortSignal.abort())).rejects.toMatchObject({ kind: "token" });
    expect(refused).toHaveBeenCalledTimes(2);
  });

  it("tells a service that is gone from a request that was given up", async () => {
    const down = new Api(nobody, "api/", () => Promise.reject(new TypeError("Failed to fetch")));
    await expect(down.lake(signal())).rejects.toMatchObject({ kind: "gone" });
    const given = AbortSignal.abort();
    await expect(down.lake(given)).rejects.not.toBeInstanceOf(ApiError);
  });

  it("does not take another page for an answer", async () => {
    const api = new Api(nobody, "api/", answering(200, "<html>"));
    await expect(api.lake(signal())).rejects.toMatchObject({ kind: "broken" });
  });

  it("gathers a download and tells how far it is", async () => {
    const headers = { "Content-Disposition": "attachment; filename*=UTF-8''j%C3%B6in.csv" };
    const api = new Api(nobody, "api/", answering(200, "a,b\n1,2\n", headers));
    const came: number[] = [];
    const body = {
      left: { table: "t" },
      on: "c",
      hit: { table: "u", column: "d" },
      how: "left",
      many: "expand",
      join: null,
      tau: null,
      matching: "best", columns: null, aggregate: null, precision: null, decisions: [] as never[],
    } as const;
    const file = await api.download(body, { format: "csv", neutralise: true }, signal(), (n) => came.push(n));
    expect(file.name).toBe("jöin.csv");
    expect(await file.blob.text()).toBe("a,b\n1,2\n");
    expect(came.at(-1)).toBe(8);
  });

  it("reads plain names of files too", () => {
    expect(fileName('attachment; filename="x y.csv"')).toBe("x y.csv");
    expect(fileName(null)).toBeNull();
  });
});

describe("a search", () => {
  it("leaves to the service what was not chosen, and its own table out", () => {
    expect(searchBody({ table: "t" }, "c", FILTERS)).toEqual({
      query: { table: "t", column: "c" },
      k: 10,
      exclude_table: "t",
      matches: 8,
    });
    const filters = { ...FILTERS, join: "semantic" as const, tau: 0, least: 0.2, grouped: true };
    expect(searchBody({ upload: "u" }, "c", filters)).toMatchObject({
      query: { upload: "u", column: "c" },
      join: "semantic",
      tau: 0,
      min_joinability: 0.2,
      group: "tables",
    });
  });
});
