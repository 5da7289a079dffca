// Schemas that nobody has seen before, for rows that are held to them.

/** No answer is whole before it is cut: a list wants more items than there are tokens. */
export function schemaOf(number) {
  const kinds = [
    { type: 'string', minLength: 3, maxLength: 40 },
    { type: 'integer', minimum: number },
    { enum: ['red', 'green', `colour-${number}`] },
    { type: 'string', pattern: `^[a-z]{2,${4 + (number % 9)}}$` },
    { type: ['number', 'null', 'boolean'] },
  ];
  const properties = {};
  for (let i = 0; i < 3 + (number % 4); i++)
    properties[`field_${number}_${i}`] = kinds[(number + i) % kinds.length];
  const item = { type: 'object', properties, required: Object.keys(properties), additionalProperties: false };
  return { type: 'array', items: item, minItems: 1000 };
}
