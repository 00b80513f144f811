cp sample_apps/hello_app.py app.py
sed 's/sample_apps.flights_app/app/' properties/local.properties > app.properties
echo '{"partitionKey": "en", "data": "Hello"}' > records.jsonl
