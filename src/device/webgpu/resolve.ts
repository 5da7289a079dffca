/** From a node of the graph to kernels, and to the buffers of their roles. */

import type { Node, NodeOf } from '../graph.js';
import { checkConv, checkScan } from '../state.js';
import { ownSlab } from './feature-slab.js';
import { isHostNode } from './host-experts.js';
import type { Kernel } from './kernel.js';
import { addFeaturesKernel, addGatheredKernel } from './kernels/add-rows.js';
import { clampKernel } from './kernels/clamp.js';
import { columnsInputs, columnsKernel } from './kernels/columns.js';
import {
  actKernel,
  addKernel,
  gluKernel,
  rmsNormKernel,
  scaleKernel,
  selectOutputsKernel,
} from './kernels/elementwise.js';
import { embedKernel } from './kernels/embed.js';
import { gateKernel } from './kernels/gate.js';
import { gatedDeltaKernel } from './kernels/gated-delta.js';
import { fixedLanes } from './kernels/linear-fast.js';
import { normKernel, normRole } from './kernels/norm.js';
import { routeKernel } from './kernels/route.js';
import { sampleKernel } from './kernels/sample.js';
import { attendSegmentsKernel, rotateKernel } from './kernels/segments.js';
import { segmentsMatrixKernel } from './kernels/segments-matrix.js';
import { selectiveScanKernel } from './kernels/selective-scan.js';
import { shortConvKernel } from './kernels/short-conv.js';
import { stateOf } from './layer-caches.js';
import { fusionOf } from './linear-work.js';
import { resolveRopeAppend, splitKLeft } from './resolve-append.js';
import { attendFor, once, resolveAttend } from './resolve-attend.js';
import { resolveExperts } from './resolve-experts.js';
import { resolveExact, resolveHeads, resolveLinear } from './resolve-linear.js';
import {
  type Bound,
  type Bucket,
  bound,
  matrix,
  planes,
  type Resources,
  strideOf,
  vector,
} from './resources.js';

/** What the kernels of a node depend on of a bucket, as text: where it is the same, so are they. */
export function variationOf(node: Node, bucket: Bucket, r: Resources): string {
  switch (node.op) {
    // Norms and glus vanish into linears where those take them.
    case 'linear':
    case 'head-linear':
    case 'rms-norm':
    case 'glu':
    case 'experts':
      return `${bucket[node.x.rows]}`;
    // Of one row, what a product leaves may be appended by it; of some more, it may be left in slices.
    case 'rope-append': {
      if (bucket[node.qkv.rows] === 1) return 'one';
      const product = r.fusions.productOf.get(node);
      const left = product === undefined ? null : splitKLeft(product, bucket, r);
      return left === null ? '' : JSON.stringify(left.sums);
    }
    case 'attend-segments':
      // Its scratch is so large.
      return String(bucket[node.qkv.rows]);
    case 'rotate':
      return r.fusions.attentionOf.has(node) ? String(bucket[node.x.rows]) : '';
    case 'attend':
      return JSON.stringify(attendFor(node, bucket, r));
    case 'input':
    case 'embed':
    case 'norm':
    case 'act':
    case 'add':
    case 'add-features':
    case 'add-gathered':
    case 'scale':
    case 'clamp':
    case 'route':
    case 'columns':
    case 'short-conv':
    case 'gated-delta':
    case 'selective-scan':
    case 'gate':
    case 'select-outputs':
    case 'sample':
      return '';
  }
}

export function resolveNode(node: Node, bucket: Bucket, r: Resources): Bound[] {
  const host = r.fusions.into.get(node);
  if (host !== undefined) {
    const { norm, glu } = fusionOf(host, bucket, r);
    if (norm === node || glu === node) return [];
  }
  switch (node.op) {
    case 'input':
      return [];
    case 'embed':
      return resolveEmbed(node, r);
    case 'rms-norm': {
      const { x, out } = node;
      if (r.fusions.sumOf.has(node)) return [];
      const kernel = rmsNormKernel({ rowKind: x.rows, cols: x.cols, eps: node.eps });
      return [bound(kernel, r, { x: r.tensor(x), weight: vector(node.weight), out: r.tensor(out) })];
    }
    case 'norm': {
      const { x, out, kind, parts, eps } = node;
      const kernel = normKernel({ rowKind: x.rows, cols: x.cols, kind, parts, eps });
      const vectors = parts.flatMap(({ weight, bias }, at) => [
        ...(weight === null ? [] : [[normRole(at, 'weight'), vector(weight)] as const]),
        ...(bias === null ? [] : [[normRole(at, 'bias'), vector(bias)] as const]),
      ]);
      return [bound(kernel, r, { x: r.tensor(x), ...Object.fromEntries(vectors), out: r.tensor(out) })];
    }
    case 'linear':
      return node.exact === true ? resolveExact(node, bucket, r) : resolveLinear(node, bucket, r);
    case 'head-linear':
      return resolveHeads(node, bucket, r);
    case 'rope-append':
      return resolveRopeAppend(node, bucket, r);
    case 'attend':
      return resolveAttend(node, bucket, r);
    case 'glu': {
      const { x, out, activation } = node;
      const kernel = gluKernel({ rowKind: x.rows, half: out.cols, activation });
      return [bound(kernel, r, { x: r.tensor(x), out: r.tensor(out) })];
    }
    case 'act': {
      const { x, out, activation, parameters } = node;
      const kernel = actKernel({ rowKind: x.rows, cols: x.cols, activation });
      const numbers = parameters === null ? {} : { parameters: vector(parameters) };
      return [bound(kernel, r, { x: r.tensor(x), ...numbers, out: r.tensor(out) })];
    }
    case 'add': {
      const { a, b, out } = node;
      const norm = r.fusions.normOf.get(node);
      if (norm !== undefined) {
        const { x, weight, eps } = norm;
        const kernel = rmsNormKernel({ rowKind: x.rows, cols: x.cols, eps, residual: true });
        const residual = r.tensor(norm.out === a ? b : a);
        return [bound(kernel, r, { x: r.tensor(x), weight: vector(weight), residual, out: r.tensor(out) })];
      }
      const kernel = addKernel({ rowKind: a.rows, cols: a.cols });
      return [bound(kernel, r, { a: r.tensor(a), b: r.tensor(b), out: r.tensor(out) })];
    }
    case 'add-features': {
      const { x, column, out } = node;
      const slab = ownSlab(node.features);
      const features = { rows: slab.rows, cols: strideOf(slab.cols) };
      const kernel = addFeaturesKernel({ cols: x.cols, column, features });
      return [bound(kernel, r, { x: r.tensor(x), features: slab.buffer, out: r.tensor(out) })];
    }
    case 'add-gathered': {
      const { x, table, taps, out } = node;
      const placed = taps === 'position';
      const tableRows = table.length / x.cols;
      const count = placed ? taps : taps.cols / 2;
      const shape = { rowKind: x.rows, cols: x.cols, taps: count, tableRows };
      const given = placed ? {} : { taps: r.tensor(taps) };
      const buffers = { x: r.tensor(x), table: vector(table), ...given, out: r.tensor(out) };
      return [bound(addGatheredKernel(shape), r, buffers)];
    }
    case 'scale': {
      const { x, out, factor, softcap } = node;
      const kernel = scaleKernel({ rowKind: x.rows, cols: x.cols, factor, softcap });
      return [bound(kernel, r, { x: r.tensor(x), out: r.tensor(out) })];
    }
    case 'clamp': {
      const { x, bounds, out } = node;
      const kernel = clampKernel({ rowKind: x.rows, cols: x.cols, runs: bounds.length / 2 });
      return [bound(kernel, r, { x: r.tensor(x), bounds: vector(bounds), out: r.tensor(out) })];
    }
    case 'route': {
      const { logits, out, spec } = node;
      const bias = {
        ...(spec.bias !== null && { bias: vector(spec.bias) }),
        ...(spec.expertScales && { scales: vector(spec.expertScales) }),
      };
      const kernel = routeKernel({ rowKind: logits.rows, experts: logits.cols, spec });
      return [bound(kernel, r, { logits: r.tensor(logits), ...bias, out: r.tensor(out) })];
    }
    case 'columns': {
      const inputs = columnsInputs(node).map((x, i) => [`x${i}`, r.tensor(x)] as const);
      return [bound(columnsKernel(node), r, { ...Object.fromEntries(inputs), out: r.tensor(node.out) })];
    }
    case 'rotate': {
      const { x, angles, out, heads, headDim, style } = node;
      const attend = r.fusions.attentionOf.get(node);
      if (attend !== undefined && segmentsKernel(attend, bucket, r) !== null) return [];
      const shape = { rowKind: x.rows, cols: x.cols, heads, headDim, dims: angles.cols, style };
      return [
        bound(rotateKernel(shape), r, { x: r.tensor(x), angles: r.tensor(angles), out: r.tensor(out) }),
      ];
    }
    case 'attend-segments': {
      const { qkv, bounds, out, heads, headDim, scale } = node;
      const buffers = { bounds: r.tensor(bounds), out: r.tensor(out) };
      const kernel = segmentsKernel(node, bucket, r);
      if (kernel === null) {
        const portable = attendSegmentsKernel({ rowKind: qkv.rows, heads, headDim, scale });
        return [bound(portable, r, { qkv: r.tensor(qkv), ...buffers })];
      }
      const rotation = r.fusions.rotationOf.get(node);
      const angles = rotation === undefined ? {} : { angles: r.tensor(rotation.angles) };
      return [bound(kernel, r, { qkv: r.tensor(rotation?.x ?? qkv), ...angles, ...buffers })];
    }
    case 'experts':
      return r.hostExperts && isHostNode(node) ? [] : resolveExperts(node, bucket, r);
    case 'short-conv': {
      const { x, weight, bias, out } = node;
      const state = stateOf(r, node);
      checkConv(node, state.shape);
      const vectors = { weight: vector(weight), ...(bias === null ? {} : { bias: vector(bias) }) };
      const kernel = shortConvKernel(node, state);
      const buffers = { x: r.tensor(x), ...vectors, tables: state.tables, state: state.buffer };
      return [bound(kernel, r, { ...buffers, out: r.tensor(out) })];
    }
    case 'gated-delta': {
      const { qkv, gates, decay, out } = node;
      const state = stateOf(r, node);
      checkScan(node, state.shape);
      const inputs = { qkv: r.tensor(qkv), gates: r.tensor(gates), decay: vector(decay) };
      const buffers = { ...inputs, tables: state.tables, state: state.buffer, out: r.tensor(out) };
      return [bound(gatedDeltaKernel(node, state, fixedLanes(r.capabilities)), r, buffers)];
    }
    case 'selective-scan': {
      const { x, steps, decay, out } = node;
      const state = stateOf(r, node);
      checkScan(node, state.shape);
      const inputs = { x: r.tensor(x), steps: r.tensor(steps), decay: vector(decay) };
      const buffers = { ...inputs, tables: state.tables, state: state.buffer, out: r.tensor(out) };
      return [bound(selectiveScanKernel(node, state), r, buffers)];
    }
    case 'gate': {
      const { x, gate, norm, out } = node;
      const weight = norm === null ? {} : { weight: vector(norm.weight) };
      const buffers = { x: r.tensor(x), gate: r.tensor(gate), ...weight, out: r.tensor(out) };
      return [bound(gateKernel(node), r, buffers)];
    }
    case 'select-outputs': {
      const { x, out, mean = 1 } = node;
      return [
        bound(selectOutputsKernel({ cols: out.cols, mean }), r, { x: r.tensor(x), out: r.tensor(out) }),
      ];
    }
    case 'sample': {
      const { cols } = node.logits;
      const shape = { vocab: cols, stride: strideOf(cols), rows: r.maxOutputs };
      const kernel = sampleKernel(r.capabilities, shape);
      const { ids, lastToken } = r;
      return [bound(kernel, r, { logits: r.tensor(node.logits), ids, lastToken })];
    }
  }
}

/** Attention in segments on matrices, which turns q and k itself; null where there is none. */
function segmentsKernel(node: NodeOf<'attend-segments'>, bucket: Bucket, r: Resources): Kernel | null {
  const { qkv, heads, headDim, scale } = node;
  const rotated = r.fusions.rotationOf.get(node)?.angles.cols ?? 0;
  const rows = bucket[qkv.rows];
  const shape = { rowKind: qkv.rows, heads, headDim, scale, rotated, rows, most: node.most ?? rows };
  return once(r, 'segments', shape, () => segmentsMatrixKernel(r.capabilities, shape));
}

function resolveEmbed(node: NodeOf<'embed'>, r: Resources): Bound[] {
  const table = matrix(node.table);
  const features = node.features ? ownSlab(node.features) : null;
  return table.shards.map((shard) => {
    const kernel = embedKernel({
      n: shard.rows,
      rowStart: shard.rowStart,
      tableRows: table.rows,
      k: table.cols,
      layout: shard.layout,
      scale: node.scale,
      features: features === null ? null : { rows: features.rows, cols: strideOf(features.cols) },
      featureRow: node.featureRow ?? null,
    });
    const slab = features === null || shard.rowStart !== 0 ? {} : { features: features.buffer };
    return bound(kernel, r, { ...planes(shard), ...slab, last_token: r.lastToken, out: r.tensor(node.out) });
  });
}
