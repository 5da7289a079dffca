import { E2M1, IQ4, lookUp } from './matmul-tiles';

/**
 * Dequantises row `row` of a table (see tableWords) to f32, times `scale`. Zeros, and false, where there is no such row.
 */
export function gatherRow(table: usize, row: u32, scale: f32, out: usize): bool {
  const segments = load<u32>(table);
  const cols = load<u32>(table, 8);
  let p = table + 16;
  for (let i: u32 = 0; i < segments; i++, p += 40) {
    const first = load<u32>(p, 4);
    if (row < first || row - first >= load<u32>(p, 8)) continue;
    const local = row - first;
    const block = load<u32>(p) + (local >> 3) * load<u32>(p, 28);
    const format = load<u32>(p, 16);
    const dtype = load<u32>(p, 24);
    const by = load<f32>(load<u32>(p, 32) + local * 4) * scale;
    if (format == 0) gatherFloat(block, local & 7, cols, dtype, by, out);
    else if (format < 16) gatherAffine(block, local & 7, cols, format, load<u32>(p, 20), dtype, by, out);
    else gatherChunks(block, local & 7, cols, format, by, out);
    return true;
  }
  memory.fill(out, 0, cols * 4);
  return false;
}

function gatherFloat(block: usize, r: u32, cols: u32, dtype: u32, by: f32, out: usize): void {
  for (let c: u32 = 0; c < cols; c++) {
    let v: f32;
    if (dtype == 0) v = load<f32>(block + c * 32 + r * 4);
    else v = half16(load<u16>(block + c * 16 + (r & 3) * 4 + (r < 4 ? 2 : 0)), dtype);
    store<f32>(out + c * 4, v * by);
  }
}

function half16(bits: u32, dtype: u32): f32 {
  if (dtype == 2) return reinterpret<f32>(bits << 16);
  return reinterpret<f32>((bits & 0x8000) << 16 | (bits & 0x7fff) << 13) * reinterpret<f32>(0x77800000);
}

function gatherAffine(
  block: usize, r: u32, cols: u32, bits: u32, group: u32, dtype: u32, by: f32, out: usize,
): void {
  let w = block;
  for (let g: u32 = 0; g < cols; g += group) {
    const meta = w + group * bits;
    let scale: f32;
    let bias: f32;
    if (dtype == 0) {
      scale = load<f32>(meta + r * 4);
      bias = load<f32>(meta + 32 + r * 4);
    } else {
      const both = load<u32>(meta + r * 4);
      scale = half16(both >> 16, dtype);
      bias = half16(both & 0xffff, dtype);
    }
    for (let i: u32 = 0; i < group; i += 32) {
      gatherSteps(w, 0, 8, r, bits, 0, scale, bias, by, out);
      out += 128;
      w += bits * 32;
    }
    w = meta + (dtype == 0 ? 64 : 32);
  }
}

/** K-quants, symmetric codes and tables: what makes numbers of a chunk's codes stands behind them, and before a superblock. */
function gatherChunks(block: usize, r: u32, cols: u32, format: u32, by: f32, out: usize): void {
  const kind = format >> 4;
  const width = format & 15;
  const bits: u32 = kind > 2 ? 4 : width;
  const minima = kind == 1 && bits != 3 && bits != 6;
  const table: usize = kind < 3 ? 0 : width == 5 ? E2M1 : IQ4;
  const centre: f32 = kind < 3 ? <f32>(1 << (bits - 1)) : width == 5 ? 12 : 128;
  let w = block;
  let d: f32 = 0;
  let low: f32 = 0;
  for (let g: u32 = 0; g < cols; g += 32) {
    if ((g & 255) == 0) {
      if (minima) {
        const both = load<u32>(w + r * 4);
        d = half16(both >> 16, 1);
        low = half16(both & 0xffff, 1);
        w += 32;
      } else if (kind == 1 || kind == 5) {
        d = halfOfRow(w, r);
        w += 16;
      }
    }
    const at = w + bits * 32;
    for (let h: u32 = 0; h < 2; h++) {
      let scale: f32;
      let bias: f32 = 0;
      switch (kind) {
        case 1:
          if (minima && bits == 2) {
            const both = <u32>load<u8>(at + r + h * 8);
            scale = d * <f32>(both & 15);
            bias = -low * <f32>(both >> 4);
          } else if (minima) {
            scale = d * <f32>load<u8>(at + r);
            bias = -low * <f32>load<u8>(at + r + 8);
          } else scale = d * <f32>load<i8>(at + r + h * 8);
          break;
        case 4: {
          const e = <u32>load<u8>(at + r);
          scale = reinterpret<f32>(e < 2 ? 0x200000 << e : (e - 1) << 23);
          break;
        }
        case 5: scale = d * <f32>load<i8>(at + r); break;
        case 6: scale = halfE4m3(load<u8>(at + r + h * 8)); break;
        default: scale = halfOfRow(at, r);
      }
      if (!minima) bias = -centre * scale;
      gatherSteps(w, h * 4, h * 4 + 4, r, bits, table, scale, bias, by, out);
      out += 64;
    }
    w = at + (kind == 4 || kind == 5 ? 8 : 16);
  }
}

/** Half of a float of 8 bits, 4 of them exponent. */
// @ts-ignore: decorator
@inline function halfE4m3(bits: u32): f32 {
  const low = bits & 127;
  const size = low < 8 ? <f32>low * reinterpret<f32>(117 << 23) : reinterpret<f32>((low << 20) + (119 << 23));
  return bits < 128 ? size : -size;
}

/** Of 8 halves. */
// @ts-ignore: decorator
@inline function halfOfRow(at: usize, r: u32): f32 {
  const both = load<u32>(at + (r & 3) * 4);
  return half16(r < 4 ? both >> 16 : both & 0xffff, 1);
}

/** Steps `[first, end)` of a chunk, 4 columns each. */
function gatherSteps(
  w: usize, first: u32, end: u32, r: u32, bits: u32, table: usize, scale: f32, bias: f32, by: f32, out: usize,
): void {
  const c4 = f32x4.splat(scale);
  const d4 = f32x4.splat(bias);
  const by4 = f32x4.splat(by);
  for (let s = first; s < end; s++) {
    let codes: u32;
    switch (bits) {
      case 2: codes = plane(w, 2, s, r); break;
      case 3: codes = plane(w, 2, s, r) | plane(w + 64, 1, s, r) << 2; break;
      case 4: codes = plane(w, 4, s, r); break;
      case 5: codes = five(w + 80 * (s >> 2), s & 3, r); break;
      case 6: codes = six(w + 48 * (s >> 1), s & 1, r); break;
      default: codes = plane(w + 128, 4, s, r) | plane(w, 4, s, r) << 4;
    }
    let bytes = i32x4.splat(codes);
    if (table != 0) bytes = lookUp(v128.load(table), bytes);
    const q = i32x4.extend_low_i16x8_u(i16x8.extend_low_i8x16_u(bytes));
    const v = f32x4.add(f32x4.mul(f32x4.convert_i32x4_s(q), c4), d4);
    v128.store(out, f32x4.mul(v, by4));
    out += 16;
  }
}

/** Bits of one plane for the 4 columns of step s, a byte each. */
function plane(w: usize, width: u32, s: u32, r: u32): u32 {
  const perVector = 4 / width;
  const word = wordOf(w + 16 * (s / perVector), r);
  const shift = 2 * width * (s % perVector) + (r < 4 ? 0 : width);
  return word >> shift & ((1 << width) - 1) * 0x01010101;
}

/** Codes of 6 bits of the first or second step of two. */
function six(w: usize, second: u32, r: u32): u32 {
  if (second == 0) return wordOf(r < 4 ? w : w + 16, r) & 0x3f3f3f3f;
  if (r < 4) return wordOf(w + 32, r) & 0x3f3f3f3f;
  const high = wordOf(w, r) >> 2 & 0x30303030;
  return high | wordOf(w + 16, r) >> 4 & 0x0c0c0c0c | wordOf(w + 32, r) >> 6 & 0x03030303;
}

/** Codes of 5 bits of step s of four. */
function five(w: usize, s: u32, r: u32): u32 {
  const whole = 2 * s + (r < 4 ? 0 : 1);
  if (whole < 5) return wordOf(w + 16 * whole, r) & 0x1f1f1f1f;
  const first = w + (whole == 5 ? 0 : whole == 6 ? 32 : 64);
  const high = wordOf(first, r) >> 3 & 0x1c1c1c1c;
  if (whole < 7) return high | wordOf(first + 16, r) >> 6 & 0x03030303;
  return high | wordOf(w + 16, r) >> 4 & 0x02020202 | wordOf(w + 48, r) >> 5 & 0x01010101;
}

/** What a vector holds of row r, or of that four above. */
// @ts-ignore: decorator
@inline function wordOf(vector: usize, r: u32): u32 {
  const lane = r & 3;
  if (RELAXED) return load<u32>(vector + lane * 4);
  return load<u16>(vector + lane * 2) | <u32>load<u16>(vector + 8 + lane * 2) << 16;
}
