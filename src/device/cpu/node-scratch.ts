/** How much scratch the kernels of each node need. */
import type { Node } from '../graph.js';
import { attentionScratchBytes, segmentsScratchBytes } from './attend-commands.js';
import { routeScratchBytes } from './commands.js';
import { type CompileOptions, mostRows, precisionOf } from './compile-options.js';
import { expertScratchBytes, stacksOf } from './expert-commands.js';
import { headLinearScratchBytes } from './head-linear-commands.js';
import { headTokens } from './kv-store.js';
import { scratchBytes } from './linear-commands.js';
import { cacheOf } from './placement.js';
import { deltaScratchBytes, scanScratchBytes, shortConvScratchBytes } from './recurrent-commands.js';
import { ownMatrix } from './resident.js';
import { ropeScratchBytes } from './rope-commands.js';
import { sampleScratchBytes } from './sample-commands.js';

/** Bytes of scratch that a node needs. */
export function nodeScratchBytes(options: CompileOptions, node: Node): number {
  const { set, caches, limits, threads, precision } = options;
  switch (node.op) {
    case 'linear':
      return scratchBytes(
        ownMatrix(set, node.weight).packed,
        mostRows(options, node.x),
        precisionOf(options, node),
        threads,
      );
    case 'head-linear':
      return headLinearScratchBytes(threads);
    case 'rope-append':
      return ropeScratchBytes(node, threads);
    case 'attend': {
      const { formats, spec, tail } = cacheOf(caches, node);
      const floats = { head: headTokens(formats, spec), tail: tail !== null };
      return attentionScratchBytes(node, formats, floats, limits.maxContext, threads);
    }
    case 'route':
      return routeScratchBytes(node, threads);
    case 'attend-segments':
      return segmentsScratchBytes(node, threads);
    case 'experts':
      return expertScratchBytes(node, stacksOf(set, node), mostRows(options, node.x), precision, threads);
    case 'short-conv':
      return shortConvScratchBytes(node, threads);
    case 'gated-delta':
      return deltaScratchBytes(node, threads);
    case 'selective-scan':
      return scanScratchBytes(node, threads);
    case 'sample':
      return sampleScratchBytes(node.logits.cols, limits.maxOutputs, threads);
    case 'input':
    case 'embed':
    case 'rms-norm':
    case 'norm':
    case 'gate':
    case 'glu':
    case 'act':
    case 'add':
    case 'add-features':
    case 'add-gathered':
    case 'scale':
    case 'clamp':
    case 'columns':
    case 'rotate':
    case 'select-outputs':
      return 0;
  }
}
