// JSON Schemas of types that the official client publishes: schemas.mjs OUT TYPE...
import { writeFileSync } from 'node:fs'
import { createGenerator } from 'ts-json-schema-generator'

const [, , out, ...types] = process.argv
const generator = createGenerator({
  path: 'node_modules/@notionhq/client/build/src/api-endpoints.d.ts',
  skipTypeCheck: true,
  topRef: true,
  additionalProperties: false,
  expose: 'all',
  jsDoc: 'none',
})
const schemas = Object.fromEntries(types.map((type) => [type, generator.createSchema(type)]))
writeFileSync(out, JSON.stringify(schemas))
