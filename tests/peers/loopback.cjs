// Preloaded into Node programs that offer no say in where they listen
// (NODE_OPTIONS="--require .../loopback.cjs"): every listener that would sit on
// all interfaces sits on 127.0.0.1 instead.
'use strict';
const net = require('node:net');

const EVERYWHERE = new Set(['0.0.0.0', '::', '[::]', '', '*']);
const LOOPBACK = '127.0.0.1';
const listen = net.Server.prototype.listen;

const isPort = (value) => typeof value === 'number' || (typeof value === 'string' && /^\d+$/.test(value));
const isEverywhere = (host) => host === undefined || host === null || EVERYWHERE.has(host);

// listen() takes its address in one of these shapes; what is not a TCP port (a
// pipe's path, a handle, a file descriptor) is left alone.
net.Server.prototype.listen = function listenOnLoopback(...args) {
  const first = args[0];
  if (args.length === 0 || typeof first === 'function') {
    args.unshift({ port: 0, host: LOOPBACK });
  } else if (isPort(first) || first === undefined || first === null) {
    if (typeof args[1] === 'string') {
      if (isEverywhere(args[1])) args[1] = LOOPBACK;
    } else {
      args.splice(1, args[1] === undefined || args[1] === null ? 1 : 0, LOOPBACK);
    }
    if (first === undefined || first === null) args[0] = 0;
  } else if (typeof first === 'object' && first.port !== undefined && isEverywhere(first.host)) {
    args[0] = { ...first, host: LOOPBACK };
  }
  return listen.apply(this, args);
};
