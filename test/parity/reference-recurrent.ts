/** Recurrent layers of the float64 device: no state is kept, but all rows that a sequence had, over which each step runs anew. */
import type { Node, Tensor } from '../../src/device/graph.js';
import type { StepInputs } from '../../src/device/step.js';

export class Histories {
  /** By recurrent node and slot: all rows it was given. */
  readonly #histories = new Map<Node, Map<number, Float64Array[]>>();

  /** A recurrent node over all that its sequences had so far: what it is asked for is what is new. */
  run(
    node: Node,
    cols: number,
    x: Float64Array,
    inputs: StepInputs,
    run: (rows: readonly Float64Array[]) => readonly Float64Array[],
  ): Float64Array {
    const histories = this.#histories.get(node) ?? new Map<number, Float64Array[]>();
    this.#histories.set(node, histories);
    const out: Float64Array[] = [];
    for (let s = 0; s < inputs.sequenceCount; s++) {
      const [slot, start] = [inputs.seqSlot[s]!, inputs.seqStart[s]!];
      const [length, position] = [inputs.seqLength[s]!, inputs.seqPosition[s]!];
      const rows = (histories.get(slot) ?? []).slice(0, position);
      for (let t = start; t < start + length; t++) rows.push(x.slice(t * cols, (t + 1) * cols));
      histories.set(slot, rows);
      out.push(...run(rows).slice(position));
    }
    return Float64Array.from(out.flatMap((row) => [...row]));
  }

  /** A recurrent node of two inputs, both side by side as one row of a history; of the second it takes some columns. */
  runPair(
    node: Node,
    a: Tensor,
    b: { readonly of: Tensor; readonly from: number; readonly cols: number },
    value: (tensor: Tensor) => Float64Array,
    inputs: StepInputs,
    run: (rows: readonly Float64Array[], beside: readonly Float64Array[]) => readonly Float64Array[],
  ): Float64Array {
    const cols = a.cols + b.cols;
    const both = new Float64Array(inputs.tokenCount * cols);
    for (let t = 0; t < inputs.tokenCount; t++) {
      both.set(value(a).subarray(t * a.cols, (t + 1) * a.cols), t * cols);
      const start = t * b.of.cols + b.from;
      both.set(value(b.of).subarray(start, start + b.cols), t * cols + a.cols);
    }
    return this.run(node, cols, both, inputs, (rows) =>
      run(
        rows,
        rows.map((row) => row.subarray(a.cols)),
      ),
    );
  }
}
