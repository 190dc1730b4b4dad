import { defineConfig } from "vite";

// Addresses are relative, so that the page also works behind a proxy that adds a prefix.
export default defineConfig({
  base: "./",
  build: {
    outDir: "../src/deepjoin/serve/http/page",
    emptyOutDir: true,
    // Browsers that know light-dark(); it is then left as it is written.
    target: ["chrome123", "firefox120", "safari17.5"],
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    reportCompressedSize: false,
  },
  server: { proxy: { "/api": "http://127.0.0.1:8000" } },
});
