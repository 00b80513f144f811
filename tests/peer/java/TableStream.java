import com.amazonaws.services.dynamodbv2.streamsadapter.AmazonDynamoDBStreamsAdapterClient;
import com.amazonaws.services.dynamodbv2.streamsadapter.StreamsSchedulerFactory;
import com.amazonaws.services.dynamodbv2.streamsadapter.model.DynamoDBStreamsProcessRecordsInput;
import com.amazonaws.services.dynamodbv2.streamsadapter.polling.DynamoDBStreamsPollingConfig;
import com.amazonaws.services.dynamodbv2.streamsadapter.processor.DynamoDBStreamsShardRecordProcessor;
import java.net.URI;
import java.util.concurrent.TimeUnit;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.services.cloudwatch.CloudWatchAsyncClient;
import software.amazon.awssdk.services.dynamodb.DynamoDbAsyncClient;
import software.amazon.awssdk.services.dynamodb.streams.DynamoDbStreamsClient;
import software.amazon.kinesis.common.ConfigsBuilder;
import software.amazon.kinesis.common.InitialPositionInStream;
import software.amazon.kinesis.common.InitialPositionInStreamExtended;
import software.amazon.kinesis.coordinator.CoordinatorConfig.ClientVersionConfig;
import software.amazon.kinesis.coordinator.Scheduler;
import software.amazon.kinesis.metrics.NullMetricsFactory;

/**
 * A worker of the DynamoDB Streams adapter 2.x that keeps a journal of what it saw.
 *
 * <p>System properties: dynamodb (URL), stream (ARN), application, worker, journal (folder), version
 * (of the client version config). See {@link Journaling}.
 */
public final class TableStream {
    private TableStream() {}

    public static void main(String[] arguments) {
        Region region = Region.US_EAST_1;
        URI endpoint = URI.create(System.getProperty("dynamodb"));
        DynamoDbAsyncClient dynamodb =
                DynamoDbAsyncClient.builder().region(region).endpointOverride(endpoint).build();
        AmazonDynamoDBStreamsAdapterClient streams = new AmazonDynamoDBStreamsAdapterClient(
                DynamoDbStreamsClient.builder().region(region).endpointOverride(endpoint).build(),
                region);
        CloudWatchAsyncClient cloudwatch = CloudWatchAsyncClient.builder().region(region).build();
        String stream = System.getProperty("stream");
        ConfigsBuilder configs = new ConfigsBuilder(
                StreamsSchedulerFactory.createSingleStreamTracker(
                        stream,
                        InitialPositionInStreamExtended.newInitialPosition(
                                InitialPositionInStream.TRIM_HORIZON)),
                System.getProperty("application"), streams, dynamodb, cloudwatch,
                System.getProperty("worker"), () -> new TableJournaling("table"));
        Scheduler scheduler = StreamsSchedulerFactory.createScheduler(
                configs.checkpointConfig(),
                configs.coordinatorConfig().clientVersionConfig(
                        ClientVersionConfig.valueOf(System.getProperty("version"))),
                configs.leaseManagementConfig()
                        .leasesRecoveryAuditorExecutionFrequencyMillis(15_000),
                configs.lifecycleConfig(),
                configs.metricsConfig().metricsFactory(new NullMetricsFactory()),
                configs.processorConfig(),
                configs.retrievalConfig().retrievalSpecificConfig(
                        new DynamoDBStreamsPollingConfig(stream, streams)
                                .idleTimeBetweenReadsInMillis(500)),
                streams);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            try {
                scheduler.startGracefulShutdown().get(20, TimeUnit.SECONDS);
            } catch (Exception error) {
                error.printStackTrace();
            }
        }));
        scheduler.run();
    }

    private static final class TableJournaling extends Journaling
            implements DynamoDBStreamsShardRecordProcessor {
        TableJournaling(String stream) {
            super(stream);
        }

        @Override
        public void processRecords(DynamoDBStreamsProcessRecordsInput given) {
            see(given.records(), given.checkpointer());
        }
    }
}
