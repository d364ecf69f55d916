// Perfetto's trace processor as a filter: its requests on stdin, its replies on stdout.
//
// argv[2] is a folder of Perfetto's page, with engine_bundle.js and trace_processor.wasm. The page
// runs the bundle in a worker. Here the bundle gets a worker's globals, and none of Node's.
"use strict";

const fs = require("fs");
const path = require("path");
const vm = require("vm");

const folder = process.argv[2];

class FileRequest {
  open(_, url) {
    this.file = path.join(folder, path.basename(url));
  }
  send() {
    this.response = fs.readFileSync(this.file);
  }
}

const tell = (...what) => console.error(...what); // stdout is for replies
const worker = vm.createContext({
  WorkerGlobalScope: Object,
  XMLHttpRequest: FileRequest,
  location: { href: "http://localhost/engine_bundle.js" },
  console: { log: tell, info: tell, warn: tell, error: tell },
  performance,
  setTimeout,
  TextDecoder,
  Uint8Array, // what comes from outside is one of these to the bundle
  URL,
});
worker.self = worker;
// A Node with 64-bit memories would get another .wasm, with other pointers. The bundle asks for them
// with a module that is a memory (5) and nothing else, and is refused: all Nodes do the same.
vm.runInContext(
  `WebAssembly.Module = class extends WebAssembly.Module {
    constructor(bytes) {
      if (bytes[8] === 5) throw new WebAssembly.CompileError("no 64-bit memory here");
      super(bytes);
    }
  };`,
  worker,
);

const port = { postMessage: (reply) => process.stdout.write(reply) };
vm.runInContext(fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf8"), worker);
worker.onmessage({ data: port });
process.stdin.on("data", (data) => port.onmessage({ data }));
