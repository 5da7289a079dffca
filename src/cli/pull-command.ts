/** `kvant pull`: fetches a model from the hub into the cache. */
import type { Command } from 'commander';
import { resolveModel } from '../weights/hub.js';
import { ProgressBar } from './progress.js';

interface PullFlags {
  readonly revision?: string;
  readonly json?: boolean;
}

export function addPullCommand(program: Command): void {
  program
    .command('pull <model>')
    .summary('fetch a model from the hub into the cache')
    .description(
      'Fetches a model into the Hugging Face cache and prints its folder. HF_TOKEN, HF_HOME, HF_ENDPOINT and HF_HUB_OFFLINE are honoured; a download that broke off goes on where it stopped.',
    )
    .option('--revision <name>', 'branch, tag or commit (also org/name@revision)')
    .option('--json', 'print {model, folder} as JSON')
    .addHelpText('after', '\nExample:\n  $ kvant pull Qwen/Qwen3-0.6B')
    .action(async (model: string, flags: PullFlags) => {
      const bar = new ProgressBar();
      try {
        const { folder } = await resolveModel(model, {
          ...(flags.revision === undefined ? {} : { revision: flags.revision }),
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
        process.stdout.write(flags.json ? `${JSON.stringify({ model, folder })}\n` : `${folder}\n`);
      } finally {
        bar.done();
      }
    });
}
