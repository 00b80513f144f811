package com.amazonaws.services.dynamodbv2.local.server;

/** DynamoDB Local with its test control: a PutItem to the table [TEST_CONTROL] moves its time. */
public final class ControlledServer {
    public static void main(String[] arguments) throws Exception {
        DynamoDBRequestHandler requests =
                new LocalDynamoDBRequestHandler(0, true, null, true, false, true);
        DynamoDBProxyServer server = new DynamoDBProxyServer(
                Integer.parseInt(arguments[0]), new LocalDynamoDBServerHandler(requests, null));
        server.start();
        server.join();
    }
}
