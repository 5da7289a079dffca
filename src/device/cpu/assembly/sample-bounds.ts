import { F_MIROSTAT, P_MIN_P } from '../sample-words';
import { log4 } from './math';
import { LEAST_Z, MOST, boundsOf, features, number } from './sample-row';

/**
 * What a row keeps: tokens whose logit is above `least`, or equal to it with an id up to `leastTie`, and whose z is at
 * least `leastZ`; of a shaped row those whose z is nearer to `middle` than `distance`, or as near with an id up to
 * `distanceTie`; and of those none before the token `drop`, `dropTie` in order.
 */
export let least: f32 = 0;
let leastTie: u32 = 0;
export let leastZ: f32 = 0;
export let middle: f32 = 0;
export let distance: f32 = 0;
let distanceTie: u32 = 0;
let drop: f32 = 0;
let dropTie: u32 = 0;
export let shaped: bool = false;

/** Bounds that keep everything but what min-p drops. */
export function openBounds(row: u32): void {
  setPrefix(-Infinity, MOST);
  const minP = features & F_MIROSTAT ? <f32>0 : number(row, P_MIN_P);
  // Its logarithm; a threshold below the normal numbers is none.
  setLeastZ(minP >= 1.2e-38 ? f32x4.extract_lane(log4(f32x4.splat(minP)), 0) : LEAST_Z);
  middle = 0;
  setDistance(Infinity, MOST);
  setDrop(Infinity, 0);
  shaped = false;
}

export function setPrefix(value: f32, tie: u32): void {
  least = value;
  leastTie = tie;
}

/** The largest always passes: its z is 0. */
export function setLeastZ(value: f32): void {
  leastZ = max<f32>(LEAST_Z, min<f32>(value, 0));
}

export function setMiddle(value: f32): void {
  middle = value;
}

export function setDistance(value: f32, tie: u32): void {
  distance = value;
  distanceTie = tie;
  shaped = true;
}

export function setDrop(value: f32, tie: u32): void {
  drop = value;
  dropTie = tie;
  shaped = true;
}

export function storeBounds(row: u32): void {
  const at = boundsOf(row);
  store<f32>(at, least);
  store<u32>(at, leastTie, 4);
  store<f32>(at, leastZ, 8);
  store<f32>(at, middle, 12);
  store<f32>(at, distance, 16);
  store<u32>(at, distanceTie, 20);
  store<f32>(at, drop, 24);
  store<u32>(at, dropTie, 28);
  store<u32>(at, shaped ? 1 : 0, 32);
}

export function loadBounds(row: u32): void {
  const at = boundsOf(row);
  least = load<f32>(at);
  leastTie = load<u32>(at, 4);
  leastZ = load<f32>(at, 8);
  middle = load<f32>(at, 12);
  distance = load<f32>(at, 16);
  distanceTie = load<u32>(at, 20);
  drop = load<f32>(at, 24);
  dropTie = load<u32>(at, 28);
  shaped = load<u32>(at, 32) != 0;
}

/** Whether bounds leave anything out. */
// @ts-ignore: decorator
@inline export function isClosed(): bool {
  return shaped || least > -Infinity || leastZ > LEAST_Z;
}

/** Which of four tokens are within the bounds: all bits of a lane, or none. */
// @ts-ignore: decorator
@inline export function kept4(x: v128, z: v128, ids: v128): v128 {
  const least4 = f32x4.splat(least);
  let keep = v128.and(
    f32x4.ge(z, f32x4.splat(leastZ)),
    v128.or(f32x4.gt(x, least4), v128.and(f32x4.eq(x, least4), i32x4.le_u(ids, i32x4.splat(leastTie)))),
  );
  if (shaped) {
    const away = f32x4.abs(f32x4.sub(z, f32x4.splat(middle)));
    const most = f32x4.splat(distance);
    const near = v128.and(f32x4.eq(away, most), i32x4.le_u(ids, i32x4.splat(distanceTie)));
    keep = v128.and(keep, v128.or(f32x4.lt(away, most), near));
    const border = f32x4.splat(drop);
    const first = v128.and(f32x4.eq(x, border), i32x4.lt_u(ids, i32x4.splat(dropTie)));
    keep = v128.andnot(keep, v128.or(f32x4.gt(x, border), first));
  }
  return keep;
}
