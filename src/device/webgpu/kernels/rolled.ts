/**
 * Loops that stay loops. Drivers unroll what has a constant number of turns, and machine code that is executed has to come
 * from memory in nearly every layer of a step, for the kernels of a layer together are larger than the caches of
 * instructions, and its weights sweep the rest: 0.4 µs for each KB, measured, however many workgroups there are
 * (docs/lab/2026-11-22-where-a-step-goes.md, "Cold code"). What is unrolled has to be worth that.
 */

/** What `rolledBound` reads, as a parameter of the kernel's main function. */
export const GROUPS_PARAMETER = '@builtin(num_workgroups) groups: vec3<u32>';

/**
 * The number of turns as text, u32: one that no compiler knows. What it may be at most they see, and a compiler that writes
 * out loops of up to so many turns (NVIDIA's: eight) does that here too, with an end after each. `groups`
 * (`GROUPS_PARAMETER`) is in scope.
 */
export function rolledBound(count: number): string {
  return `(${count}u * min(groups.z, 1u))`;
}

/**
 * A loop over `name`, u32, from 0 as long as it is not above `last`, by `step`, that stays a loop even where there are
 * products of matrices in it. NVIDIA's compiler writes those out eight times whatever the bounds are, and other loops within
 * them; one with a barrier before its end is tested it leaves alone. For workgroups of a single subgroup, to which that barrier
 * costs little. What stands between `head` and `exit` runs once more than the rest.
 */
export function barrierLoop(
  name: string,
  step: number,
  last: string,
): { readonly head: string; readonly exit: string; readonly tail: string } {
  return {
    head: `{ var ${name}_next = 0u;
  loop {
    let ${name} = ${name}_next;
    workgroupBarrier();`,
    exit: `if (${name} > ${last}) { break; }`,
    tail: `${name}_next = ${name} + ${step}u;
  } }`,
  };
}
