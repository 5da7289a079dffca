import { pythonEquals } from './python-values.js';
import { elements, FloatValue, IntegerValue, StringValue, type Value } from './values.js';

/** `left + right`: Python joins a string with strings only, where the engine joins it with anything. */
export function joinStrings(left: Value, right: Value): Value {
  if (left.type === 'StringValue' && right.type === 'StringValue') {
    return new StringValue(String(left.value) + String(right.value));
  }
  throw new Error(`+ is not known between ${left.type} and ${right.type}`);
}

/** `left % right` of numbers: the remainder has the sign of the divisor. */
export function modulo(left: Value, right: Value): Value {
  const numeric = (value: Value): boolean => value.type === 'IntegerValue' || value.type === 'FloatValue';
  if (!numeric(left) || !numeric(right))
    throw new Error(`% is not known between ${left.type} and ${right.type}`);
  const divisor = Number(right.value);
  if (divisor === 0) throw new Error('modulo by zero');
  const remainder = Number(left.value) % divisor;
  const result = remainder !== 0 && remainder < 0 !== divisor < 0 ? remainder + divisor : remainder;
  const float = left.type === 'FloatValue' || right.type === 'FloatValue';
  return float ? new FloatValue(result) : new IntegerValue(result);
}

/** `item in container`. */
export function contains(container: Value, item: Value): boolean {
  switch (container.type) {
    case 'ArrayValue':
    case 'TupleValue':
      return elements(container).some((element) => pythonEquals(element, item));
    case 'ObjectValue':
      return item.type === 'StringValue' && (container.value as Map<string, Value>).has(String(item.value));
    case 'StringValue':
      if (item.type !== 'StringValue') throw new Error(`a string cannot hold a ${item.type}`);
      return String(container.value).includes(String(item.value));
    case 'UndefinedValue':
      return false;
    default:
      throw new Error(`a ${container.type} holds nothing to look for`);
  }
}
