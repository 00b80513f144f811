import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import software.amazon.kinesis.lifecycle.events.InitializationInput;
import software.amazon.kinesis.lifecycle.events.LeaseLostInput;
import software.amazon.kinesis.lifecycle.events.ProcessRecordsInput;
import software.amazon.kinesis.lifecycle.events.ShardEndedInput;
import software.amazon.kinesis.lifecycle.events.ShutdownRequestedInput;
import software.amazon.kinesis.processor.RecordProcessorCheckpointer;
import software.amazon.kinesis.processor.ShardRecordProcessor;
import software.amazon.kinesis.retrieval.KinesisClientRecord;

/**
 * A processor that checkpoints after each batch and writes what tests/data/kclpy/journal.py writes,
 * one file a processor, in the folder of the system property journal.
 */
class Journaling implements ShardRecordProcessor {
    private static final Path JOURNAL = Path.of(System.getProperty("journal"));
    private static final AtomicInteger NUMBERS = new AtomicInteger();

    private final Path file = JOURNAL.resolve("journal-" + NUMBERS.incrementAndGet() + ".jsonl");
    private final String stream;

    Journaling(String stream) {
        this.stream = stream;
    }

    private void note(String saw, String details) {
        double at = System.currentTimeMillis() / 1000.0;
        String line = String.format(
                "{\"at\":%.3f,\"saw\":\"%s\",\"stream\":\"%s\"%s}%n", at, saw, stream, details);
        try {
            Files.writeString(
                    file, line, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private void checkpoint(RecordProcessorCheckpointer checkpointer) {
        try {
            checkpointer.checkpoint();
            note("checkpoint", "");
        } catch (Exception error) {
            note("refused", ",\"error\":\"" + error.getClass().getSimpleName() + "\"");
        }
    }

    @Override
    public void initialize(InitializationInput given) {
        note("initialize", String.format(
                ",\"shard\":\"%s\",\"position\":[\"%s\",%d]",
                given.shardId(),
                given.extendedSequenceNumber().sequenceNumber(),
                given.extendedSequenceNumber().subSequenceNumber()));
    }

    @Override
    public void processRecords(ProcessRecordsInput given) {
        see(given.records(), given.checkpointer());
    }

    final void see(
            List<? extends KinesisClientRecord> records, RecordProcessorCheckpointer checkpointer) {
        if (records.isEmpty()) {
            return;
        }
        note("records", records.stream()
                .map(record -> String.format(
                        "[\"%s\",%d,\"%s\",\"%s\"]",
                        record.sequenceNumber(), record.subSequenceNumber(),
                        record.partitionKey(), text(record)))
                .collect(Collectors.joining(",", ",\"records\":[", "]")));
        checkpoint(checkpointer);
    }

    private static String text(KinesisClientRecord record) {
        String text = StandardCharsets.UTF_8.decode(record.data()).toString();
        return text.replace("\\", "\\\\").replace("\"", "\\\"");
    }

    @Override
    public void leaseLost(LeaseLostInput given) {
        note("lease_lost", "");
    }

    @Override
    public void shardEnded(ShardEndedInput given) {
        note("shard_ended", "");
        checkpoint(given.checkpointer());
    }

    @Override
    public void shutdownRequested(ShutdownRequestedInput given) {
        note("shutdown_requested", "");
        checkpoint(given.checkpointer());
    }
}
