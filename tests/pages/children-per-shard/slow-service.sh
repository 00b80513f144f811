cat > service.py <<'END'
import http.server, time

class Service(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(0.05)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass

http.server.ThreadingHTTPServer(("127.0.0.1", 18099), Service).serve_forever()
END
python3 service.py &
export SERVICE_URL=http://127.0.0.1:18099/ NO_PROXY=127.0.0.1
for key in a b c d e f g h i j k l m n o p; do
    echo "{\"partitionKey\": \"$key\", \"data\": \"Hello\"}"
done > records.jsonl
