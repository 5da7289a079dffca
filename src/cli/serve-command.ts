/** `kvant serve`: the OpenAI-compatible server. */
import type { Command } from 'commander';
import type { Engine } from '../engine/engine.js';
import type { ReasoningFormat, RunningServer } from '../server/index.js';
import { addConnectionFlags, type ConnectionFlags, connectionOptions } from './connection-flags.js';
import { EXAMPLE_MODEL } from './example-model.js';
import { EXIT } from './exit.js';
import {
  addEngineFlags,
  bytes,
  type CliLogLevel,
  type EngineFlags,
  engineOptions,
  integer,
  logLevelFlag,
  number,
  TOOL_FORMAT,
} from './flags.js';
import { SIGNALS } from './interrupt.js';
import { neverBlock, written } from './log-sink.js';
import { leaveLostTerminal } from './lost-terminal.js';
import { addMediaFlags, type MediaFlags, mediaOptions } from './media-flags.js';
import { Option } from './option.js';
import { addSamplingFlags, type SamplingFlags, samplingOptions } from './sampling-flags.js';
import { addKeyFlags, type KeyFlags, openKeys } from './serve-keys.js';
import { requireTarget, type ShapeFlags } from './shape-flags.js';

interface ServeFlags extends EngineFlags, SamplingFlags, ShapeFlags, ConnectionFlags, KeyFlags, MediaFlags {
  readonly host: string;
  readonly port: number;
  readonly name?: string;
  readonly maxQueue?: number;
  readonly queueTimeout?: number;
  readonly bodyLimit?: number;
  readonly bodyMemory?: number;
  readonly reasoningFormat: ReasoningFormat;
  readonly toolFormat?: string;
  readonly grace: number;
  readonly logLevel: CliLogLevel;
}

export function addServeCommand(program: Command): void {
  const command = program
    .command('serve [model]')
    .description(
      'Serves a model: POST /v1/chat/completions and /v1/completions, GET /v1/models, /health and /metrics.',
    )
    .option('--host <address>', 'address to listen on; 0.0.0.0 opens it to the network', '127.0.0.1')
    .option('--port <n>', 'port to listen on; 0 takes any free one', integer(0, 65535), 8080)
    .option(
      '--name <name>',
      'name that the model is served under (default: its name on the hub, or that of its folder)',
    )
    .option('--max-queue <n>', 'requests that may wait (default: 256); more get 429', integer(0))
    .option(
      '--queue-timeout <seconds>',
      'how long a request waits for its turn at most, where it does not say; then it gets 503',
      number(0.001, 1e6),
    )
    .option(
      '--body-limit <size>',
      'largest request body (default: 64 bytes a token of the context, 1MiB to 16MiB)',
      bytes,
    )
    .option(
      '--body-memory <size>',
      'most bytes of large request bodies that are held at once; more get 503 (default: 32MiB, at least two of the largest)',
      bytes,
    )
    .addOption(
      new Option(
        '--reasoning-format <name>',
        'auto: deliver a <think> block as reasoning_content; none: leave it',
      )
        .choices(['auto', 'none'])
        .default('auto'),
    )
    .option('--tool-format <name>', TOOL_FORMAT)
    .option('--grace <seconds>', 'how long a shutdown waits for answers under way', integer(0, 86_400), 30)
    .addOption(logLevelFlag('info'));
  command.optionsGroup('API keys; time is shared evenly between them:');
  addKeyFlags(command);
  command.optionsGroup('Who may connect, and how slow they may be:');
  addConnectionFlags(command);
  command.optionsGroup('Pictures, for a model that sees:');
  addMediaFlags(command);
  command.optionsGroup('Sampling, where a request does not say:');
  addSamplingFlags(command, 'defaults');
  command.optionsGroup('Options:');
  addEngineFlags(command);
  // Names are not listed, or help would load what knows them.
  command
    .option('--shapes <name>', 'instead of a model: random weights in the sizes of one, for load tests')
    .option('--vocab <n>', 'rows of the vocabulary, with --shapes', integer(2));
  command.addHelpText(
    'after',
    `
Examples:
  $ kvant serve ${EXAMPLE_MODEL}
  $ kvant serve Qwen/Qwen3-0.6B --quantize 4 --port 8000 --api-key-file keys.jsonl
  $ curl localhost:8080/v1/chat/completions -H 'content-type: application/json' \\
      -d '{"messages": [{"role": "user", "content": "What is the capital of Japan?"}]}'

KVANT_RESOURCE_DEBUG=1 logs device bytes and buffer counts at every step.`,
  );
  command.action(async (model: string | undefined, flags: ServeFlags) => {
    const outputs = [process.stdout, process.stderr];
    for (const output of outputs) neverBlock(output);
    await runServer(model, flags);
    // What nobody reads must not keep the process.
    if (!(await written(outputs, LAST_WORDS_MS))) process.exit(EXIT.ok);
  });
}

/** How long the last lines may take to be written. */
const LAST_WORDS_MS = 1000;

async function runServer(model: string | undefined, flags: ServeFlags): Promise<void> {
  requireTarget(model, flags, 'kvant serve');
  const options = engineOptions(flags);
  const [
    { loadEngine, loadShape },
    { createLogger },
    { checkAddress, listen },
    { PageGuard },
    { isLocalOnly },
  ] = await Promise.all([
    import('./load.js'),
    import('./log.js'),
    import('../server/index.js'),
    import('../server/page-guard.js'),
    import('../server/authority.js'),
  ]);
  const { cors = [], allowHost = [] } = flags;
  // What is spelled wrongly is to be known before a model is loaded.
  new PageGuard({ origins: cors, hosts: allowHost, hasKey: false });
  const log = createLogger(flags.logLevel);
  // A terminal that is closed, or a wish to read the keys again: no reason to end, from here on.
  let reload = async (): Promise<void> => {};
  process.on('SIGHUP', () => {
    leaveLostTerminal();
    void reload();
  });
  const access = await openKeys(flags, log);
  reload = access.reload;
  await checkAddress(flags.host, flags.port);
  const all = {
    ...options,
    ...mediaOptions(flags),
    sampling: samplingOptions(flags),
    ...(flags.name === undefined ? {} : { name: flags.name }),
    ...(flags.toolFormat === undefined ? {} : { toolFormat: flags.toolFormat }),
    ...(flags.maxQueue === undefined ? {} : { maxQueue: flags.maxQueue }),
    ...(flags.queueTimeout === undefined ? {} : { queueTimeoutMs: 1000 * flags.queueTimeout }),
  };
  const { shapes, vocab } = flags;
  const engine =
    shapes === undefined
      ? await loadEngine(model!, all, log)
      : await loadShape(
          shapes,
          { ...all, ...(vocab === undefined ? {} : { vocab }), standInText: true },
          log,
        );
  let server: RunningServer;
  try {
    server = await listen({
      engine,
      log,
      host: flags.host,
      port: flags.port,
      reasoningFormat: flags.reasoningFormat,
      ...(access.keys === undefined ? {} : { apiKey: access.keys }),
      ...(flags.maxPriority === undefined ? {} : { maxPriority: flags.maxPriority }),
      ...(flags.prefixCacheShared === undefined ? {} : { prefixCacheShared: flags.prefixCacheShared }),
      ...(flags.bodyLimit === undefined ? {} : { bodyLimit: flags.bodyLimit }),
      ...(flags.bodyMemory === undefined ? {} : { bodyMemory: flags.bodyMemory }),
      ...connectionOptions(flags),
    });
  } catch (error) {
    await engine.close();
    throw error;
  }
  const { info } = engine;
  log.info(
    {
      url: server.url,
      model: info.name,
      device: info.device.name,
      rows: info.limits.maxRows,
      context: info.limits.maxContext,
      sampling: info.samplingDefaults,
    },
    'listening',
  );
  void engine.failed.then((error) =>
    log.fatal({ code: error.code, fix: error.fix }, `the engine has failed: ${error.message}`),
  );
  if (access.anonymous && !isLocalOnly(flags.host))
    log.warn({ host: flags.host }, 'anybody on the network may use this server: there is no --api-key');
  const authorization = access.anonymous ? '' : " -H 'authorization: Bearer KEY'";
  const body = info.model.hasChatTemplate
    ? ['chat/completions', '{"messages": [{"role": "user", "content": "Hello"}]}']
    : ['completions', '{"prompt": "Hello"}'];
  process.stdout.write(
    `${info.name} on ${info.device.name} at ${server.url}/v1\n` +
      `Try: curl ${server.url}/v1/${body[0]}${authorization} -H 'content-type: application/json' -d '${body[1]}'\n`,
  );
  await shutDownOnSignal(server, engine, flags.grace, (message) => log.info(message));
}

/** The first signal lets answers under way finish; the second ends the process at once. */
async function shutDownOnSignal(
  server: RunningServer,
  engine: Engine,
  graceSeconds: number,
  say: (message: string) => void,
): Promise<void> {
  await new Promise<void>((resolve) => {
    for (const signal of SIGNALS) process.once(signal, () => resolve());
  });
  for (const signal of SIGNALS) process.on(signal, () => process.exit(EXIT.interrupted));
  say(`shutting down; answers under way have ${graceSeconds} s`);
  await server.close(graceSeconds * 1000);
  await engine.close();
  say('stopped');
}
