/* One of several children of a shard on npm's aws-kcl: a journal like that of sibling.py; checkpoints each batch. */
'use strict';

const fs = require('fs');
const path = require('path');
const kcl = require('aws-kcl');

const file = path.join(process.env.JOURNAL, `journal-${process.pid}.jsonl`);

function note(saw, details) {
  const line = JSON.stringify({ at: Date.now() / 1000, saw, ...details });
  fs.appendFileSync(file, line + '\n');
}

let last = null;

function checkpoint(checkpointer, done) {
  checkpointer.checkpoint((error) => {
    note(error ? 'refused' : 'checkpoint', error ? { error } : { position: last });
    done();
  });
}

kcl({
  initialize(input, done) {
    note('initialize', {
      shard: input.shardId,
      child: process.env.KCL_MLD_CHILD,
      children: process.env.KCL_MLD_CHILDREN,
      arguments: process.argv.slice(2),
    });
    done();
  },
  processRecords(input, done) {
    if (!input.records.length) {
      done();
      return;
    }
    const records = input.records.map((r) => [
      r.sequenceNumber,
      r.subSequenceNumber,
      r.partitionKey,
      Buffer.from(r.data, 'base64').toString(),
    ]);
    note('records', { records });
    last = records[records.length - 1].slice(0, 2);
    setTimeout(() => checkpoint(input.checkpointer, done), 2 * records.length);
  },
  leaseLost(input, done) {
    note('lease_lost');
    done();
  },
  shardEnded(input, done) {
    note('shard_ended');
    checkpoint(input.checkpointer, done);
  },
  shutdownRequested(input, done) {
    note('shutdown_requested');
    checkpoint(input.checkpointer, done);
  },
}).run();
