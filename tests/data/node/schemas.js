/* A record processor on npm's aws-kcl: writes down the schema of each record, and its definition. */
'use strict';

const fs = require('fs');
const path = require('path');
const kcl = require('aws-kcl');

const JOURNAL = path.join(process.env.JOURNAL, `journal-${process.pid}.jsonl`);

function definition(versionId) {
  return JSON.parse(fs.readFileSync(path.join(process.env.KCL_MLD_SCHEMAS, versionId), 'utf8'));
}

function seen(record) {
  const version = record.schemaVersionId;
  return {
    data: Buffer.from(record.data, 'base64').toString('hex'),
    version: version || null,
    name: record.schemaName || null,
    format: record.dataFormat || null,
    definition: version ? definition(version) : null,
  };
}

kcl({
  initialize: (input, done) => done(),
  processRecords(input, done) {
    for (const record of input.records) {
      fs.appendFileSync(JOURNAL, JSON.stringify(seen(record)) + '\n');
    }
    input.checkpointer.checkpoint(() => done());
  },
  leaseLost: (input, done) => done(),
  shardEnded: (input, done) => input.checkpointer.checkpoint(() => done()),
  shutdownRequested: (input, done) => input.checkpointer.checkpoint(() => done()),
}).run();
