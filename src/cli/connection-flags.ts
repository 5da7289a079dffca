/** Flags of `kvant serve` about who may connect, and how slow they may be. */
import type { Command } from 'commander';
import type { ListenOptions } from '../server/index.js';
import { integer, number } from './flag-numbers.js';

export interface ConnectionFlags {
  readonly cors?: readonly string[];
  readonly allowHost?: readonly string[];
  readonly maxConnections?: number;
  readonly maxConnectionsPerAddress?: number;
  readonly headerTimeout?: number;
  readonly bodyTimeout?: number;
  readonly requestTimeout?: number;
  readonly writeTimeout?: number;
  readonly keepAliveTimeout?: number;
}

const several = (text: string, before: readonly string[] = []): string[] => [...before, text];
const seconds = number(0, 1e6);

export function addConnectionFlags(command: Command): void {
  command
    .option(
      '--cors <origin>',
      'origin whose web pages may use the server, such as http://localhost:3000, https://*.example.com, tauri://localhost or vscode-webview://; * for any; several may be given',
      several,
    )
    .option(
      '--allow-host <name>',
      'name that requests may ask for, such as host.docker.internal, besides localhost and addresses, where no key is wanted; * for any; several may be given',
      several,
    )
    .option('--max-connections <n>', 'connections at once (default: 4096); 0 for any number', integer(0))
    .option(
      '--max-connections-per-address <n>',
      'connections at once from one address (default: 1024; a proxy is one); 0 for any number',
      integer(0),
    )
    .option(
      '--header-timeout <seconds>',
      'how long the head of a request may take (default: 30); 0 for any time, here and below',
      seconds,
    )
    .option('--body-timeout <seconds>', 'how long a body may bring nothing (default: 30)', seconds)
    .option(
      '--request-timeout <seconds>',
      'how long a whole request may take to arrive (default: 300)',
      seconds,
    )
    .option(
      '--write-timeout <seconds>',
      'how long a client may leave its answer where it is (default: 60)',
      seconds,
    )
    .option(
      '--keep-alive-timeout <seconds>',
      'how long a connection is kept for a next request (default: 75)',
      seconds,
    );
}

/** What the flags say; what they do not say stays out. */
export function connectionOptions(flags: ConnectionFlags): Partial<ListenOptions> {
  const ms = (name: string, value: number | undefined) =>
    value === undefined ? {} : { [name]: 1000 * value };
  const { maxConnections, maxConnectionsPerAddress } = flags;
  return {
    corsOrigin: flags.cors ?? [],
    allowedHosts: flags.allowHost ?? [],
    ...(maxConnections === undefined ? {} : { maxConnections }),
    ...(maxConnectionsPerAddress === undefined ? {} : { maxConnectionsPerAddress }),
    ...ms('headerTimeoutMs', flags.headerTimeout),
    ...ms('bodyTimeoutMs', flags.bodyTimeout),
    ...ms('requestTimeoutMs', flags.requestTimeout),
    ...ms('writeTimeoutMs', flags.writeTimeout),
    ...ms('keepAliveTimeoutMs', flags.keepAliveTimeout),
  };
}
