import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.services.cloudwatch.CloudWatchAsyncClient;
import software.amazon.awssdk.services.dynamodb.DynamoDbAsyncClient;
import software.amazon.awssdk.services.kinesis.KinesisAsyncClient;
import software.amazon.kinesis.common.ConfigsBuilder;
import software.amazon.kinesis.common.InitialPositionInStream;
import software.amazon.kinesis.common.InitialPositionInStreamExtended;
import software.amazon.kinesis.common.KinesisClientUtil;
import software.amazon.kinesis.common.StreamConfig;
import software.amazon.kinesis.common.StreamIdentifier;
import software.amazon.kinesis.coordinator.CoordinatorConfig;
import software.amazon.kinesis.coordinator.Scheduler;
import software.amazon.kinesis.metrics.NullMetricsFactory;
import software.amazon.kinesis.processor.FormerStreamsLeasesDeletionStrategy;
import software.amazon.kinesis.processor.FormerStreamsLeasesDeletionStrategy.NoLeaseDeletionStrategy;
import software.amazon.kinesis.processor.MultiStreamTracker;
import software.amazon.kinesis.processor.ShardRecordProcessor;
import software.amazon.kinesis.processor.ShardRecordProcessorFactory;
import software.amazon.kinesis.retrieval.polling.PollingConfig;

/**
 * A worker of the Java library that reads many streams and keeps a journal of what it saw.
 *
 * <p>System properties: kinesis, dynamodb (URLs), application, worker, streams (file with one
 * account:name:epoch a line, read anew at each look), journal (folder), version (of the client
 * version config; empty = the library has none). See {@link Journaling}.
 */
public final class ManyStreams {
    private static final InitialPositionInStreamExtended OLDEST =
            InitialPositionInStreamExtended.newInitialPosition(InitialPositionInStream.TRIM_HORIZON);

    private ManyStreams() {}

    public static void main(String[] arguments) throws Exception {
        Region region = Region.US_EAST_1;
        KinesisAsyncClient kinesis = KinesisClientUtil.createKinesisAsyncClient(
                KinesisAsyncClient.builder().region(region)
                        .endpointOverride(URI.create(System.getProperty("kinesis"))));
        DynamoDbAsyncClient dynamodb = DynamoDbAsyncClient.builder().region(region)
                .endpointOverride(URI.create(System.getProperty("dynamodb"))).build();
        CloudWatchAsyncClient cloudwatch = CloudWatchAsyncClient.builder().region(region).build();
        ConfigsBuilder configs = new ConfigsBuilder(
                new Listed(), System.getProperty("application"), kinesis, dynamodb, cloudwatch,
                System.getProperty("worker"), new Processors());
        Scheduler scheduler = new Scheduler(
                configs.checkpointConfig(),
                coordinator(configs.coordinatorConfig()),
                configs.leaseManagementConfig().shardSyncIntervalMillis(1000),
                configs.lifecycleConfig(),
                configs.metricsConfig().metricsFactory(new NullMetricsFactory()),
                configs.processorConfig(),
                configs.retrievalConfig().retrievalSpecificConfig(
                        new PollingConfig(kinesis).idleTimeBetweenReadsInMillis(500)));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            try {
                // A consumer that waits for a parent shard never hears of it.
                scheduler.startGracefulShutdown().get(20, TimeUnit.SECONDS);
            } catch (Exception error) {
                error.printStackTrace();
            }
        }));
        scheduler.run();
    }

    /** Libraries before 3.0 have no client version config. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    private static CoordinatorConfig coordinator(CoordinatorConfig config) throws Exception {
        String version = System.getProperty("version", "");
        if (!version.isEmpty()) {
            Class type = Class.forName(
                    "software.amazon.kinesis.coordinator.CoordinatorConfig$ClientVersionConfig");
            config.getClass().getMethod("clientVersionConfig", type)
                    .invoke(config, Enum.valueOf(type, version));
        }
        return config;
    }

    private static final class Listed implements MultiStreamTracker {
        @Override
        public List<StreamConfig> streamConfigList() {
            try {
                return Files.readAllLines(Path.of(System.getProperty("streams"))).stream()
                        .map(line -> new StreamConfig(
                                StreamIdentifier.multiStreamInstance(line), OLDEST))
                        .collect(Collectors.toList());
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }

        @Override
        public FormerStreamsLeasesDeletionStrategy formerStreamsLeasesDeletionStrategy() {
            return new NoLeaseDeletionStrategy();
        }

        @Override
        public InitialPositionInStreamExtended orphanedStreamInitialPositionInStream() {
            return OLDEST;
        }
    }

    private static final class Processors implements ShardRecordProcessorFactory {
        @Override
        public ShardRecordProcessor shardRecordProcessor() {
            throw new IllegalStateException("many streams only");
        }

        @Override
        public ShardRecordProcessor shardRecordProcessor(StreamIdentifier stream) {
            return new Journaling(stream.streamName());
        }
    }
}
