// What a script finds: `tools`, `console` and `print`. Runs before the script, with the intrinsics as
// they are; nothing of it looks up what the script can change.
(function (tools, call, print, explain) {
  "use strict";
  const { create, defineProperty, freeze } = Object;
  const { Error, Map, Promise, Proxy, Set, Symbol, TypeError, globalThis } = this;

  const define = (object, name, value, enumerable) =>
    defineProperty(object, name, { __proto__: null, value, enumerable });

  const functions = create(null);
  for (let index = 0; index < tools.length; index += 1) {
    const { name, function: identifier } = tools[index];
    // The error is made here because it then tells where the script made the call.
    const tool = (input) => call(index, input, define(new Error("the call failed"), "tool", name, true));
    define(tool, "name", identifier, false);
    if (!(identifier in functions)) define(functions, identifier, freeze(tool), true);
    if (!(name in functions)) define(functions, name, tool, false);
  }

  // What the language itself, or a look at a value, asks of any object.
  const asked = freeze({
    __proto__: null, then: 1, toJSON: 1, toString: 1, valueOf: 1, constructor: 1, prototype: 1, length: 1,
    __proto: 1,
  });
  const get = (target, key) => {
    if (key in target || typeof key === "symbol" || key in asked) return target[key];
    throw explain(key);
  };
  // Values that JSON would leave empty, and a promise where a value is meant.
  const writesAs = ({ prototype }, write) => define(prototype, "toJSON", write, false);
  writesAs(Error, function () {
    return { name: this.name, message: this.message, ...this };
  });
  for (const collection of [Map, Set]) {
    writesAs(collection, function () {
      return [...this];
    });
  }
  const refuse = () => {
    throw new TypeError("a promise is used as a value: await it, or several with Promise.all");
  };
  writesAs(Promise, refuse);
  define(Promise.prototype, Symbol.toPrimitive, refuse, false);
  define(globalThis, "tools", new Proxy(freeze(functions), freeze({ __proto__: null, get })), true);
  define(globalThis, "print", print, true);
  const console = {};
  for (const name of ["log", "info", "warn", "error", "debug"]) console[name] = print;
  define(globalThis, "console", console, true);
})
