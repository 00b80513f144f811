/* A record processor on npm's aws-kcl that throws at the payload "bad", and checkpoints each record. */
'use strict';

const fs = require('fs');
const path = require('path');
const kcl = require('aws-kcl');

function each(records, checkpointer, done) {
  const [record, ...rest] = records;
  if (record === undefined) {
    done();
    return;
  }
  const text = Buffer.from(record.data, 'base64').toString();
  if (text === 'bad') {
    throw new Error('no such customer');
  }
  fs.appendFileSync(path.join(process.env.JOURNAL, 'processed'), `${text}\n`);
  checkpointer.checkpoint(record.sequenceNumber, () => each(rest, checkpointer, done));
}

kcl({
  initialize(input, done) {
    done();
  },
  processRecords(input, done) {
    each(input.records, input.checkpointer, done);
  },
  leaseLost(input, done) {
    done();
  },
  shardEnded(input, done) {
    input.checkpointer.checkpoint(() => done());
  },
  shutdownRequested(input, done) {
    done();
  },
}).run();
