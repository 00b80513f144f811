kill -9 $(cat denied.pid)
python3 faults.py
sed 's/app.py/new.py/; s/applicationName = denied/applicationName = deploy/' denied.properties > deploy.properties
echo 'import gone' > new.py
