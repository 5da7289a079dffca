/** Flags that several commands share, with their parsers. Every parser names the flag and what it takes. */
import type { Command } from 'commander';
import { AUTOTUNE_MODES, type AutotuneMode } from '../device/device.js';
import { DEVICE_CHOICES, type EngineOptions } from '../engine/types.js';
import { KvantError } from '../errors.js';
import type { KvOptions } from '../kv/options.js';
import { bytes, integer, number } from './flag-numbers.js';
import { addKvFlags, isQuantized, type KvFlags, kvOptions } from './kv-flags.js';
import { Option } from './option.js';
import { addRopeFlags, overridesOf, type RopeFlags } from './rope-flags.js';

export { bytes, integer, integers, number } from './flag-numbers.js';

/** Of all commands that open a model. */
export const MMPROJ_HELP = 'GGUF file that sees for a GGUF model (default: the mmproj file beside it)';

export const CLI_LOG_LEVELS = ['silent', 'error', 'warn', 'info', 'debug', 'trace'] as const;
export type CliLogLevel = (typeof CLI_LOG_LEVELS)[number];

export const logLevelFlag = (level: CliLogLevel): Option =>
  new Option('--log-level <level>', 'how much to log on stderr').choices(CLI_LOG_LEVELS).default(level);

/** Flags of every command that finds a model, on the disk or on the hub. */
export function addHubFlags(command: Command): Command {
  return command
    .option('--revision <name>', 'branch, tag or commit of a hub model (also org/name@revision)')
    .option('--offline', 'take hub models from the cache only');
}

export interface HubFlags {
  readonly revision?: string;
  readonly offline?: boolean;
}

/** What the flags say, as options of `resolveModel`. */
export function hubOptions({ revision, offline }: HubFlags): { revision?: string; env?: NodeJS.ProcessEnv } {
  return {
    ...(revision === undefined ? {} : { revision }),
    ...(offline === undefined ? {} : { env: { ...process.env, HF_HUB_OFFLINE: '1' } }),
  };
}

/** What `--tool-format` is for. Names are not listed, or help would load what knows them. */
export const TOOL_FORMAT =
  'how the model writes tool calls: hermes, mistral, … (default: as its chat template and tokenizer show)';

/** Flags of every command that loads a model. */
export function addEngineFlags(command: Command): Command {
  command
    .addOption(
      new Option('--device <name>', 'where to run: auto takes a real GPU if there is one')
        .choices(DEVICE_CHOICES)
        .default('auto'),
    )
    .option('--software-gpu', 'let --device webgpu run on a software adapter (SwiftShader); slow, for tests')
    .option(
      '--threads <n>',
      'CPU threads that compute (default: all cores, less one above eight; beside a GPU three quarters)',
      integer(1, 256),
    )
    .option(
      '--cpu-experts <layers>',
      'GPU: keep the experts of the first so many layers in host memory, computed on the CPU',
      integer(0),
    )
    .addOption(
      new Option('--precision <name>', 'reference: f32 activations and sums everywhere').choices([
        'default',
        'reference',
      ]),
    )
    .option(
      '--deterministic',
      'GPU: one order for every sum, whatever the batch (slower; the CPU always does)',
    )
    .addOption(
      new Option(
        '--autotune <mode>',
        'GPU: measure kernels at the first start; safe changes no bit of a result, full may (see kvant tune)',
      ).choices(AUTOTUNE_MODES),
    )
    .addOption(
      new Option('--quantize <bits>', 'quantise an unquantised checkpoint on load').choices(['4', '8']),
    )
    .option(
      '--max-context <tokens>',
      'longest sequence, prompt and answer together (default: the model’s); also --max-kv-size',
      integer(1),
    )
    .addOption(
      new Option('--max-kv-size <tokens>', 'the same as --max-context').argParser(integer(1)).hideHelp(),
    )
    .option('--max-rows <n>', 'sequences that run at once', integer(1, 4096))
    .option(
      '--max-batch-tokens <n>',
      'tokens in one step, prompt chunks and decoding rows together',
      integer(1),
    )
    .option(
      '--target-itl <ms>',
      'what a step with generating rows may take, prompt chunks shrink accordingly; 0 for any time (default: 100; 200 on a CPU)',
      number(0, 1e6),
    )
    .option('--kv-memory <size>', 'bytes for the KV cache, e.g. 8GiB', bytes)
    .addOption(new Option('--prefix-cache', 'the default').hideHelp())
    .option('--no-prefix-cache', 'keep nothing of the KV cache for later requests that begin alike')
    .option(
      '--prefix-cache-bytes <size>',
      'most bytes of the KV cache kept while no request uses them (default: all of it)',
      bytes,
    )
    .option(
      '--prefix-snapshot-bytes <size>',
      'models with recurrent layers: most bytes of snapshots of their state',
      bytes,
    )
    .option(
      '--prefix-cache-dir <folder>',
      'keep prefixes on disk too, for the next start and other processes',
    )
    .option('--prefix-cache-disk-bytes <size>', 'most bytes of that folder (default: 16GiB)', bytes)
    .addOption(
      new Option('--block-tokens <n>', 'positions in a block of the KV cache').choices(['16', '32', '64']),
    );
  addKvFlags(command);
  addRopeFlags(command);
  command.option(
    '--tokenizer <model>',
    'folder, GGUF file or hub id that tokenizer and chat template come from (default: the model)',
  );
  command.option('--mmproj <file>', MMPROJ_HELP);
  return addHubFlags(command);
}

export interface EngineFlags extends HubFlags, KvFlags, RopeFlags {
  readonly device: 'auto' | 'webgpu' | 'cpu';
  readonly softwareGpu?: boolean;
  readonly threads?: number;
  readonly cpuExperts?: number;
  readonly precision?: 'default' | 'reference';
  readonly deterministic?: boolean;
  readonly tokenizer?: string;
  readonly mmproj?: string;
  readonly autotune?: AutotuneMode;
  readonly quantize?: '4' | '8';
  readonly maxContext?: number;
  readonly maxKvSize?: number;
  readonly maxRows?: number;
  readonly maxBatchTokens?: number;
  readonly targetItl?: number;
  readonly kvMemory?: number;
  readonly prefixCache?: boolean;
  readonly prefixCacheBytes?: number;
  readonly prefixSnapshotBytes?: number;
  readonly prefixCacheDir?: string;
  readonly prefixCacheDiskBytes?: number;
  readonly blockTokens?: '16' | '32' | '64';
}

/** Unasked, quantised keys are calibrated at the first start. */
function calibrationOf({ kvCalibration }: EngineFlags, kv: KvOptions): string | undefined {
  if (typeof kvCalibration === 'string') return kvCalibration;
  return kvCalibration !== false && isQuantized(kv) ? 'auto' : undefined;
}

/** What the flags say, as engine options; what they do not say stays out. */
export function engineOptions(flags: EngineFlags): EngineOptions {
  const maxContext = flags.maxContext ?? flags.maxKvSize;
  if (flags.maxKvSize !== undefined && flags.maxKvSize !== maxContext) {
    throw new KvantError('invalid-flags', '--max-context and --max-kv-size are the same, but differ.', {
      kind: 'invalid-request',
      where: '--max-kv-size',
      fix: 'Give one of them.',
    });
  }
  const hfOverrides = overridesOf(flags);
  const kv = kvOptions(flags);
  const kvCalibration = calibrationOf(flags, kv);
  const hub = {
    ...(flags.revision === undefined ? {} : { revision: flags.revision }),
    ...(flags.offline === undefined ? {} : { offline: flags.offline }),
  };
  return {
    device: flags.device,
    ...(flags.softwareGpu === undefined ? {} : { allowSoftwareGpu: flags.softwareGpu }),
    ...(flags.threads === undefined ? {} : { threads: flags.threads }),
    ...(flags.cpuExperts === undefined ? {} : { cpuExperts: flags.cpuExperts }),
    ...(flags.precision === undefined ? {} : { precision: flags.precision }),
    ...(flags.deterministic === undefined ? {} : { deterministic: flags.deterministic }),
    ...(flags.tokenizer === undefined ? {} : { tokenizer: flags.tokenizer }),
    ...(flags.mmproj === undefined ? {} : { mmproj: flags.mmproj }),
    ...(flags.autotune === undefined ? {} : { autotune: flags.autotune }),
    ...(flags.quantize === undefined ? {} : { quantize: flags.quantize === '4' ? 4 : 8 }),
    ...(maxContext === undefined ? {} : { maxContext }),
    ...(hfOverrides === undefined ? {} : { hfOverrides }),
    ...(flags.maxRows === undefined ? {} : { maxRows: flags.maxRows }),
    ...(flags.maxBatchTokens === undefined ? {} : { maxBatchTokens: flags.maxBatchTokens }),
    ...(flags.targetItl === undefined ? {} : { targetItlMs: flags.targetItl }),
    ...(flags.kvMemory === undefined ? {} : { kvMemory: flags.kvMemory }),
    ...(kvCalibration === undefined ? {} : { kvCalibration }),
    ...(flags.prefixCache === false ? { prefixCache: false } : {}),
    ...(flags.prefixCacheBytes === undefined ? {} : { prefixCacheBytes: flags.prefixCacheBytes }),
    ...(flags.prefixSnapshotBytes === undefined ? {} : { prefixSnapshotBytes: flags.prefixSnapshotBytes }),
    ...(flags.prefixCacheDir === undefined ? {} : { prefixCacheDir: flags.prefixCacheDir }),
    ...(flags.prefixCacheDiskBytes === undefined ? {} : { prefixCacheDiskBytes: flags.prefixCacheDiskBytes }),
    ...kv,
    ...(flags.blockTokens === undefined ? {} : { blockTokens: Number(flags.blockTokens) }),
    ...(Object.keys(hub).length === 0 ? {} : { hub }),
  };
}
