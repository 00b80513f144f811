/* A record processor on npm's aws-kcl: says on stderr what it sees, checkpoints each batch. */
'use strict';

const kcl = require('aws-kcl');

function say(...what) {
  process.stderr.write('saw: ' + what.join(' ') + '\n');
}

function checkpoint(checkpointer, position, done) {
  const after = (error, at) => {
    say(error ? `refused ${error}` : `checkpoint ${at}`);
    done();
  };
  if (position === null) {
    checkpointer.checkpoint(after);
  } else {
    checkpointer.checkpoint(position, after);
  }
}

kcl({
  initialize(input, done) {
    say('initialize', input.shardId);
    done();
  },
  processRecords(input, done) {
    for (const record of input.records) {
      say(record.sequenceNumber, record.partitionKey, Buffer.from(record.data, 'base64').length);
    }
    const last = input.records[input.records.length - 1];
    checkpoint(input.checkpointer, last.sequenceNumber, done);
  },
  leaseLost(input, done) {
    say('leaseLost');
    done();
  },
  shardEnded(input, done) {
    say('shardEnded');
    checkpoint(input.checkpointer, null, done);
  },
  shutdownRequested(input, done) {
    say('shutdownRequested');
    checkpoint(input.checkpointer, null, done);
  },
}).run();
