/** `kvant pull`: fetches a model from the hub into the cache. */
import type { Command } from 'commander';
import { addHubFlags, type HubFlags, hubOptions } from './flags.js';
import { untilInterrupted } from './interrupt.js';
import { ProgressBar } from './progress.js';

interface PullFlags extends HubFlags {
  readonly json?: boolean;
}

export function addPullCommand(program: Command): void {
  const command = program
    .command('pull <model>')
    .description(
      'Fetches a model into the Hugging Face cache and prints its folder. HF_TOKEN, HF_HOME, HF_ENDPOINT, HF_HUB_OFFLINE and HTTPS_PROXY are honoured; a download that broke off goes on where it stopped.',
    )
    .option('--json', 'print {model, folder} as JSON');
  addHubFlags(command)
    .addHelpText('after', '\nExample:\n  $ kvant pull Qwen/Qwen3-0.6B')
    .action((model: string, flags: PullFlags) => untilInterrupted((signal) => pull(model, flags, signal)));
}

async function pull(model: string, flags: PullFlags, signal: AbortSignal): Promise<void> {
  const { resolveModel } = await import('../weights/hub.js');
  const bar = new ProgressBar();
  try {
    const { folder, notice } = await resolveModel(model, {
      ...hubOptions(flags),
      signal,
      onProgress: (p) =>
        bar.update({
          label: 'Fetching',
          done: p.bytes,
          total: p.totalBytes,
          unit: 'bytes',
          item: `${p.file} (${p.index + 1}/${p.files})`,
        }),
    });
    bar.done();
    if (notice !== undefined) process.stderr.write(`${notice}\n`);
    process.stdout.write(flags.json ? `${JSON.stringify({ model, folder })}\n` : `${folder}\n`);
  } finally {
    bar.done();
  }
}
