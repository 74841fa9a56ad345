// Preloaded into Node programs that offer no say in where they listen
// (NODE_OPTIONS="--require .../loopback.cjs"): every listener that would sit on
// all interfaces sits on 127.0.0.1 instead. Node keeps the method that all ways
// to listen come to for those who wrap it, and it binds at once, so that a program
// that asks for its port straight after listen() gets it.
'use strict';
const net = require('node:net');

const EVERYWHERE = new Set([null, undefined, '', '*', '0.0.0.0', '::', '[::]']);
const bind = net.Server.prototype._listen2;

// A pipe's path has an address type of -1, a file descriptor comes without a port.
net.Server.prototype._listen2 = function bindToLoopback(address, port, type, ...rest) {
  const isEverywhere = (type === 4 || type === 6) && port !== null && EVERYWHERE.has(address);
  return isEverywhere ? bind.call(this, '127.0.0.1', port, 4, ...rest) : bind.call(this, address, port, type, ...rest);
};
